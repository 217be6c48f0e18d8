"""A backtest says the same in a terminal, on a page, in Markdown and as JSON."""

from __future__ import annotations

from pathlib import Path

from autotuner.backtest.report import backtest
from autotuner.backtest.slow_links import judge_iterations, read_iteration_table
from autotuner.backtest.table import read_table
from autotuner.report.backtest import backtest_report, slow_links_report
from tests.unit.report.surfaces import surfaces

TABLES = Path(__file__).parents[2] / "published"


def test_a_backtest_shows_its_errors_and_what_was_left_out_on_every_surface() -> None:
    found = backtest(read_table(TABLES / "repo_reports_misc.csv"), num_seeds=1)
    error = found.to_dict()["all"]["median_abs_error"]
    (reason,) = found.all.rows_left_out
    for shown in surfaces(backtest_report(found)):
        assert f"{100 * error:.1f}" in shown
        assert reason in shown
        assert "6 rows were left out" in shown


def test_iterations_under_slow_links_show_their_errors_and_passes_on_every_surface() -> None:
    table = read_iteration_table(TABLES / "pipemorph_iteration_times.csv")
    assert table is not None
    found = judge_iterations(table)
    assert found.all.max_abs_error is not None
    for shown in surfaces(slow_links_report(found)):
        assert f"{100 * found.all.max_abs_error:.1f}" in shown
        assert all(str(pipeline) in shown for pipeline in found.pass_s)
