"""What becomes of a long baseline."""

from __future__ import annotations

from autotuner.core.comparison import RunGroup
from autotuner.search.upkeep.baselines import longer_baseline
from tests.unit.search.upkeep.builders import runs


def test_a_long_baseline_keeps_its_first_runs_and_its_last() -> None:
    baseline: tuple[RunGroup, ...] = ()
    for night in range(40):
        baseline = longer_baseline(baseline, runs(at=float(night)))
    assert [group.at for group in baseline] == [0, 1, 2, 3, 4, *range(25, 40)]
