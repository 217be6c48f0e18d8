"""``autotuner backtest``: compares predictions with measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotuner.cli.flags import Json

if TYPE_CHECKING:
    from autotuner.backtests.slow_links import IterationTable
    from autotuner.report.report import Report

_WIDTH = 120


def backtest(
    table: Annotated[
        Path,
        typer.Argument(
            help="CSV file of measured runs, with the columns of docs/how-to/backtest-your-own-measurements.md."
        ),
    ],
    calibrate: Annotated[
        int, typer.Option("--calibrate", min=0, help="Measured runs of each job to learn from first.")
    ] = 0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Simulated searches of each job by each sampler.")] = 20,
    as_json: Json = False,
) -> None:
    """Predict runs that were already measured, and print the errors of the predictions.

    It also counts how many trials a sweep needs to find the best layout.
    Exit code 6: no row of the table can be judged.

    Example: autotuner backtest runs.csv
    """
    from autotuner.backtests.measured_table import read_table
    from autotuner.backtests.report import backtest as run_backtest
    from autotuner.backtests.slow_links import read_iteration_table
    from autotuner.cli.console import progress
    from autotuner.report.backtest import backtest_report
    from autotuner.service.observing import silence_optuna

    silence_optuna()
    iterations = read_iteration_table(table)
    if iterations is not None:
        _judge_slow_links(iterations, calibrate, as_json=as_json)
        return
    with progress("predicting the measured jobs") as bar:
        found = run_backtest(read_table(table), num_seeds=seeds, num_given=calibrate, hear=bar.count)
    _print(found.to_dict(), backtest_report(found), as_json=as_json)
    if not found.all.rows_used:
        raise typer.Exit(6)


def _print(document: dict[str, Any], report: Report, *, as_json: bool) -> None:
    """Print JSON, or the report with a width of 120 columns, because names of sheets are long."""
    from rich.constrain import Constrain

    from autotuner.cli.console import console, print_json
    from autotuner.report.terminal import render

    if as_json:
        print_json(document)
    else:
        console().print(Constrain(render(report), _WIDTH))


def _judge_slow_links(table: IterationTable, calibrate: int, *, as_json: bool) -> None:
    """Print how much the predicted times of iterations over slow links differ from those of the table."""
    from autotuner.backtests.slow_links import judge_iterations
    from autotuner.cli.console import progress
    from autotuner.core.errors import InvalidInput
    from autotuner.report.backtest import slow_links_report

    if calibrate:
        raise InvalidInput(
            "calibrate",
            calibrate,
            "must be 0 for a table of slow links, because predictions are corrected (calibrated) only with "
            "its iterations without slow links",
            0,
        )
    with progress("predicting the measured iterations"):
        found = judge_iterations(table)
    _print(found.to_dict(), slow_links_report(found), as_json=as_json)
    if not found.all.rows_used:
        raise typer.Exit(6)
