"""Charts in text, words of figures, and reports of calibrations and backtests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.backtests.measured_table import read_table
from autotuner.backtests.report import backtest
from autotuner.backtests.slow_links import judge_iterations, read_iteration_table
from autotuner.core import documents
from autotuner.core.field_change import difference
from autotuner.core.job import Calibration, PartFactor
from autotuner.core.layout import Layout
from autotuner.report.backtest import backtest_report, slow_links_report
from autotuner.report.calibration import calibrations_report
from autotuner.report.charts import Axis, Unit
from autotuner.report.drawing import Scale, title_of
from autotuner.report.words import changes_in_words
from autotuner.search.sampler.learnt_factors import LearntCalibration, Platform
from tests.announcements import AT
from tests.unit.report.surfaces import surfaces


# ---------------------------------------------------------------- drawing
@pytest.mark.parametrize(
    ("unit", "low", "high", "title", "labels"),
    [
        ("share", 0.0, 0.4, "of it, %", ["0", "10", "20", "30", "40"]),
        ("share", 0.001, 0.002, "of it, %", ["0.100", "0.125", "0.150", "0.175", "0.200"]),
        ("signed_share", -0.2, -0.05, "of it, %", ["−20 %", "−15 %", "−10 %", "−5 %"]),
        ("bytes", 0.0, 400.0, "of it, B", ["0", "100", "200", "300", "400"]),
        ("s", 0.0, 4e-7, "of it, µs", ["0.0", "0.1", "0.2", "0.3", "0.4"]),
    ],
)
def test_an_axis_is_marked_in_its_unit_however_small_its_values_are(
    unit: Unit, low: float, high: float, title: str, labels: list[str]
) -> None:
    axis = Axis(title="of it", unit=unit, low=low, high=high)
    assert title_of(axis) == title
    assert [label for _, label in Scale(axis, 0, 100).ticks(5)] == labels


# ---------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("tp4 dp8 mb1", "tp2 dp16 mb1", "tensor 4 → 2, replicate 8 → 16"),
        ("tp2 mb1", "tp2 sp mb1", "sequence parallel off → on"),
        ("dp8 mb1", "fsdp8 mb1", "sharding none → parameters"),
        ("dp8 mb1", "fsdp4 mb1", "shard 1 → 4, replicate 8 → 1, sharding none → parameters"),
        ("tp2 mb1", "tp2 mb1", ""),
    ],
)
def test_a_change_is_said_by_its_options_and_their_values(before: str, after: str, said: str) -> None:
    assert changes_in_words(difference(Layout.parse(before), Layout.parse(after))) == said


# ---------------------------------------------------------------- backtest
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


# ---------------------------------------------------------------- calibration
LEARNT = LearntCalibration(
    platform=Platform(
        accelerator="h100-sxm", intra_node_link="nvlink4", inter_node_link="ndr400", stack="torch", trainer="ours"
    ),
    num_trials=1234,
    num_sweeps=5,
    last_finished_at=AT,
    calibration=Calibration(
        factor=1.25,
        deviation=0.05,
        num_runs=9,
        parts=(
            PartFactor(part="optimizer_s", factor=2.0, deviation=0.1),
            PartFactor(part="host_s", factor=1.0, deviation=1.0),
        ),
        correlations=((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ),
    median_error=0.213,
    left_out_error=0.041,
)


def test_calibrations_have_the_same_figures_on_all_surfaces() -> None:
    figures = ("h100-sxm", "nvlink4", "ndr400", "trainer ours", "1,234", "5", "1.25 ×", "± 7 %", "21.3 %", "4.1 %")
    for text in surfaces(calibrations_report([LEARNT])):
        assert [one for one in (*figures, "optimizer 2.00 ×", "2025-10-09 08:53 UTC") if one not in text] == []
        assert "launches" not in text
    document = documents.write(LEARNT)
    assert document["whole_step"] == {
        "factor": 1.25,
        "relative_error": pytest.approx(0.0662, abs=1e-4),
        "differs": True,
    }
    assert [name for name, part in document["parts"].items() if part["differs"]] == ["optimizer_s"]
    assert documents.restore(LearntCalibration, document) == LEARNT


def test_step_times_are_unknown_if_every_trial_ran_out_of_memory() -> None:
    nothing = replace(LEARNT, calibration=None, median_error=None, left_out_error=None)
    assert documents.write(nothing)["whole_step"] is None
    for text in surfaces(calibrations_report([nothing])):
        assert "as the whole" in text
    for text in surfaces(calibrations_report([], "http://here")):
        assert "--server http://here" in text
