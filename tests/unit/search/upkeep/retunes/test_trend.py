"""What a retune's runs show over time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.upkeep import RetuneOutcome, RetuneRun, RetuneState, Trigger, Verdict
from autotuner.search.upkeep.retunes.trend import trend
from tests.unit.search.upkeep.builders import INCUMBENT, NIGHT, SLOWER, findings, runs

RUN = RetuneRun(
    id="rr-2", retune="nightly", due_at=NIGHT, trigger=Trigger.CRON, state=RetuneState.FINISHED, started_at=NIGHT
)
SLOW = replace(RUN, outcome=RetuneOutcome(verdict=Verdict.REGRESSION, detail="", findings=SLOWER))
FIRST = replace(
    RUN,
    id="rr-1",
    due_at=NIGHT - 86400,
    outcome=RetuneOutcome(verdict=Verdict.UNCHANGED, detail="", findings=findings(against_baseline=None)),
)


def test_a_run_that_was_slower_lies_below_its_band() -> None:
    (point,) = trend([SLOW])
    assert (point.run_id, point.layout, point.tokens_per_s) == ("rr-2", str(INCUMBENT), 930.0)
    assert point.reference == pytest.approx(1000.0)
    assert point.band_low == pytest.approx(990.0)
    assert point.tokens_per_s < (point.band_low or 0.0)


def test_a_run_without_a_baseline_has_no_band_and_the_oldest_comes_first() -> None:
    assert [(point.run_id, point.band_low is None) for point in trend([SLOW, FIRST])] == [
        ("rr-1", True),
        ("rr-2", False),
    ]


def test_runs_that_measured_nothing_have_no_point() -> None:
    died = replace(RUN, outcome=RetuneOutcome(verdict=Verdict.COULD_NOT_RUN, detail="it died"))
    assert trend([replace(RUN, state=RetuneState.SKIPPED), died]) == ()


def test_the_measurements_of_a_run_are_told_by_their_ends() -> None:
    scattered = replace(runs(), rates=(990.0, 1000.0, 1004.0))
    outcome = RetuneOutcome(verdict=Verdict.UNCHANGED, detail="", findings=findings(runs=scattered))
    (point,) = trend([replace(RUN, outcome=outcome)])
    assert (point.lowest, point.highest, point.num_measurements) == (990.0, 1004.0, 3)
