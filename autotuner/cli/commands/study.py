"""``autotuner study``: a sweep as an Optuna study, to be looked at with Optuna's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import Server, SweepId


def study(
    sweep_id: SweepId,
    file: Annotated[Path, typer.Argument(help="SQLite file to write.", metavar="FILE")],
    server: Server = None,
) -> None:
    """Write a sweep to a file as an Optuna study, for optuna-dashboard or a notebook.

    Example: autotuner study sw-k3v7q2mxn5 study.db
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import console
    from autotuner.cli.optuna_study import write_study

    with connect(server) as client:
        sweep, trials = client.get(f"/sweeps/{sweep_id}"), client.all(f"/sweeps/{sweep_id}/trials")["items"]
    number = write_study(file, sweep, trials)
    console().print(f"{number} trials of {sweep_id} in {file}; look at them with `optuna-dashboard sqlite:///{file}`")
