"""``autotuner calibrate``: what the stored trials taught of hardware and software."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server


def calibrate(
    on: Annotated[
        str | None,
        typer.Option("--on", help="Show only the accelerators of this cluster (local, h100:64)."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show how much finished trials correct the predictions, by accelerator, links and software.

    The column "error before" is the error of predictions without these trials.
    The column "left out" is the error for a job after learning from other jobs.

    Example: autotuner calibrate --on h100:64
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.calibrations import calibration_table

    with connect(server) as client:
        found = client.get("/calibrations", **({} if on is None else {"cluster": on}))
    if as_json:
        return print_json(found)
    console().print(calibration_table(found["items"]))
    return None
