"""What becomes of incumbent and baseline."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.comparison import ChallengeFindings, Decision
from autotuner.core.upkeep import Retune, RetuneOutcome, Verdict
from autotuner.search.upkeep.retunes.standing import Standing
from tests.unit.search.upkeep.builders import (
    BETTER,
    CHALLENGER,
    INCUMBENT,
    NIGHT,
    SLOWER,
    comparison,
    findings,
    retune,
    runs,
)

BEFORE = Standing(incumbent=INCUMBENT, baseline=(runs(),))


def after(verdict: Verdict, found: ChallengeFindings | None, held: Retune | None = None) -> Standing:
    outcome = RetuneOutcome(verdict=verdict, detail="", findings=found)
    return Standing.after(held or retune(), outcome)


def test_a_run_in_which_nothing_changed_makes_the_baseline_longer() -> None:
    longer = Standing(incumbent=INCUMBENT, baseline=(runs(), runs(at=NIGHT)))
    assert after(Verdict.UNCHANGED, findings()) == longer


@pytest.mark.parametrize(
    ("verdict", "found"),
    [
        (Verdict.REGRESSION, SLOWER),
        (Verdict.REGRESSION, replace(BETTER, against_baseline=SLOWER.against_baseline)),
        (Verdict.COULD_NOT_RUN, ChallengeFindings(death="it died")),
        (Verdict.COULD_NOT_RUN, None),
    ],
)
def test_a_regression_or_a_run_that_measured_nothing_changes_neither(
    verdict: Verdict, found: ChallengeFindings | None
) -> None:
    assert after(verdict, found, retune(adopts=True)) == BEFORE


def test_a_better_layout_waits_to_be_adopted() -> None:
    assert after(Verdict.BETTER_FOUND, BETTER).incumbent == INCUMBENT


def test_a_retune_that_adopts_takes_the_better_layout_with_what_that_reached() -> None:
    adopted = after(Verdict.BETTER_FOUND, BETTER, retune(adopts=True))
    assert adopted == Standing(incumbent=CHALLENGER, baseline=(runs(1100.0),))


def test_the_first_run_without_an_incumbent_takes_the_best_that_it_found() -> None:
    first = after(Verdict.UNCHANGED, findings(against_baseline=None), retune(incumbent=None, baseline=()))
    assert first == Standing(incumbent=INCUMBENT, baseline=(runs(at=NIGHT),))


def test_an_incumbent_that_is_faster_than_it_was_begins_a_baseline_that_it_may_not_fall_behind() -> None:
    faster = findings(against_baseline=comparison(change=0.08))
    assert after(Verdict.UNCHANGED, faster).baseline == (runs(at=NIGHT),)


def test_a_run_that_looks_otherwise_and_does_not_decide_it_does_not_join_the_baseline() -> None:
    for change in (-0.3, 0.3):
        unsure = findings(against_baseline=comparison(Decision.UNDECIDED, change))
        assert after(Verdict.UNCHANGED, unsure) == BEFORE


def test_a_layout_that_was_adopted_while_the_run_went_on_stays() -> None:
    adopted = retune(incumbent=CHALLENGER, baseline=())
    assert after(Verdict.UNCHANGED, findings(), adopted) == Standing(incumbent=CHALLENGER, baseline=())
