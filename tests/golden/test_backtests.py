"""Backtests of published tables: how far predictions of measured runs are off, and how long a search would take.

Recorded are the reports as JSON. Two tables hold layouts of transformers (one of them also with runs that teach the
model first), the third iterations of pipelines over slow links. The sampler of Optuna is left out: its proposals change
with its releases, and it is only the yardstick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotuner.backtests.measured_table import read_table
from autotuner.backtests.report import backtest
from autotuner.backtests.slow_links import judge_iterations, read_iteration_table
from tests.golden.golden import Golden

TABLES = Path(__file__).parents[1] / "published"

_YARDSTICK = "tpe"
_NUM_SEEDS = 3


@pytest.mark.parametrize(
    ("name", "num_given"),
    [("aleph_alpha_layouts_sweep", 4), ("nemo_megatron_bridge_perf", 0)],
)
def test_predictions_of_published_runs_are_as_far_off_as_they_were(golden: Golden, name: str, num_given: int) -> None:
    report = backtest(read_table(TABLES / f"{name}.csv"), num_seeds=_NUM_SEEDS, num_given=num_given)
    golden.check(f"backtests/{name}_{num_given}", _kept(report.to_dict()))


def test_predictions_of_iterations_over_slow_links_are_as_far_off_as_they_were(golden: Golden) -> None:
    table = read_iteration_table(TABLES / "pipemorph_iteration_times.csv")
    assert table is not None
    golden.check("backtests/pipemorph_iteration_times", judge_iterations(table).to_dict())


def _kept(value: Any) -> Any:
    """The report without the yardstick, and without figures that have no meaning: of small sheets these are most."""
    if isinstance(value, dict):
        kept = {key: _kept(one) for key, one in value.items() if key != _YARDSTICK}
        return {key: one for key, one in kept.items() if one not in (None, {})}
    return [_kept(one) for one in value] if isinstance(value, (list, tuple)) else value
