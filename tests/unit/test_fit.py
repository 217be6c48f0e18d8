"""The fit of constants to tables of measured runs, and how it writes them."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from autotuner.backtest.table import Sheet
from autotuner.costmodel.predict import predict
from bench.robust_fit import Constant, fit
from bench.write_constants import with_left_out_error, with_line
from tests.unit.backtest.sheets import sheet

TRAFFIC = Constant(owner="stack", name="torch", field="pointwise_traffic", start=1.9, deviation=1.0)
FACTOR = Constant(owner="cluster", name="ours", field="factor", start=1.0, deviation=0.2)


def run_by(traffic: float, factor: float = 1.0, source: str = "ours") -> Sheet:
    """A sheet whose times are those of a stack with this memory traffic."""
    told = sheet()
    truth = replace(told.job, stack=replace(told.job.stack, pointwise_traffic=traffic))
    return replace(told, step_time_s=factor * predict(told.layouts, truth).step_time.total_s, source=source)


def test_the_constant_behind_the_times_is_found() -> None:
    found = fit([run_by(3.0)], [TRAFFIC])
    assert found[TRAFFIC] == pytest.approx(3.0, rel=0.01)  # a wide prior pulls it a little


def test_a_few_runs_that_went_wrong_move_it_little() -> None:
    told = run_by(3.0)
    seconds = told.step_time_s.copy()
    seconds[:2] *= 20
    found = fit([replace(told, step_time_s=seconds)], [TRAFFIC])
    assert found[TRAFFIC] == pytest.approx(3.0, rel=0.05)  # the loss grows like a logarithm


def test_what_one_cluster_does_otherwise_is_not_taken_for_the_software() -> None:
    others = [run_by(3.0, source="theirs"), run_by(3.0, source="somebody's")]
    found = fit([run_by(3.0, factor=1.2), *others], [TRAFFIC, FACTOR])
    assert found[TRAFFIC] == pytest.approx(3.0, rel=0.02)  # priors pull a little
    assert found[FACTOR] == pytest.approx(1.2, rel=0.02)


TABLE = """\
# What it is.
[one]
origin = { framework = "One", date = "2026-01" }
kept = true  # why
share = 0.5

# Another.
[two]
origin = { framework = "Two", date = "2026-02", left_out_error = 0.500 }
"""


def test_a_constant_takes_the_place_of_its_old_value_and_nothing_else_changes() -> None:
    assert with_line(TABLE, "one", "share", "0.7") == TABLE.replace("0.5\n", "0.7\n", 1)


def test_a_new_constant_stands_at_the_end_of_its_section() -> None:
    written = with_line(TABLE, "one", "new_s", "1e-05")
    assert tomllib.loads(written)["one"]["new_s"] == 1e-05
    assert tomllib.loads(written)["two"] == tomllib.loads(TABLE)["two"]


@pytest.mark.parametrize("stack", ["one", "two"])
def test_an_origin_has_one_left_out_error(stack: str) -> None:
    written = tomllib.loads(with_left_out_error(TABLE, stack, 0.123))
    assert written[stack]["origin"]["left_out_error"] == 0.123
    assert np.array_equal(sorted(written), sorted(tomllib.loads(TABLE)))
