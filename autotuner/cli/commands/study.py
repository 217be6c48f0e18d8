"""``autotuner study`` and ``autotuner front``: a sweep's Optuna study, and its Pareto front."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import Json, Server, SweepId


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
        sweep, trials = client.read_sweep(sweep_id), client.all_trials(sweep_id)
    number = write_study(file, sweep, trials)
    console().print(f"{number} trials of {sweep_id} in {file}; look at them with `optuna-dashboard sqlite:///{file}`")


def front(
    sweep_id: SweepId,
    metrics: Annotated[
        str,
        typer.Option("--metrics", help="Metrics to compare: mfu,tokens_per_joule. Default: the metrics of the sweep."),
    ] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Weight of each metric, to mark one layout: mfu=2,tokens_per_joule=1.")
    ] = "",
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Print the layouts of a sweep that no other layout beats in every metric.

    These layouts are called the Pareto front.

    Example: autotuner front sw-k3v7q2mxn5 --metrics mfu,tokens_per_joule
    """
    from autotuner.cli.client import connect
    from autotuner.cli.console import show
    from autotuner.report.sweep_answer import front_report

    with connect(server) as client:
        show(client.read_front(sweep_id, metrics=metrics, profile=profile), front_report, as_json=as_json)
