"""``autotuner backtest``: how right predictions of runs that were measured would have been."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotuner.cli.options import Json

__all__ = ["backtest"]


def backtest(
    table: Annotated[Path, typer.Argument(help="CSV file of measured runs; docs/backtest.md names its columns.")],
    calibrate: Annotated[
        int, typer.Option("--calibrate", min=0, help="Measured runs on each sheet's cluster to learn from first.")
    ] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Searches of each sheet by each sampler.")] = 20,
    as_json: Json = False,
) -> None:
    """Predict measured runs, published or yours, and print the errors and the trials to the best layout."""
    from autotuner.backtest.report import backtest as run_backtest
    from autotuner.backtest.table import read_table
    from autotuner.cli.console import console, print_json
    from autotuner.cli.views.backtest import backtest_view
    from autotuner.logs import configure_logs, silence_optuna
    from autotuner.settings import Settings

    configure_logs(Settings().log_level)
    silence_optuna()
    report = run_backtest(read_table(table), num_seeds=seeds, num_given=calibrate)
    if as_json:
        print_json(report.to_dict())
    else:
        console().print(backtest_view(report))
    if not report.all.rows_used:
        raise typer.Exit(6)
