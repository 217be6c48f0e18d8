"""``autotuner calibrate``: what the stored trials taught of hardware and software."""

from __future__ import annotations

from typing import Annotated

import typer

from autotuner.cli.options import Json, Server

__all__ = ["calibrate"]


def calibrate(
    on: Annotated[
        str | None,
        typer.Option("--on", help="Only what was learnt on accelerators of this cluster ('local', 'h100:64')."),
    ] = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what the trials of earlier sweeps teach predictions and the next sweeps, by accelerator, links and software.

    Nothing runs, and nothing has to be called for it: every trial that ends is known to the next prediction. Error
    "before" is that of predictions for a typical machine; "left out" is that after learning, where each job is
    predicted from all other jobs alone.
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
