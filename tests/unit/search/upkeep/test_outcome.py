"""Outcomes of runs, and what becomes of incumbent and baseline."""

from __future__ import annotations

import pytest

from autotuner.domain.runs.challenge import ChallengeFindings
from autotuner.domain.runs.comparison import Decision, SequentialTest
from autotuner.domain.runs.sweep import SweepState
from autotuner.domain.upkeep.environment import EnvironmentChange
from autotuner.domain.upkeep.retune import Verdict
from autotuner.search.upkeep.outcome import conclusion, longer_baseline
from tests.builders import cpu_layout
from tests.unit.search.upkeep.builders import INCUMBENT, NIGHT, comparison, ended, findings, retune, runs

CHALLENGER = cpu_layout(tensor_parallel_degree=2)

SLOWER = findings(
    runs=runs(930.0, at=NIGHT, environment={"torch": "2.13", "host": "a"}),
    against_baseline=comparison(Decision.SLOWER, -0.07),
)

BETTER = findings(
    challenger=CHALLENGER, challenger_runs=runs(1100.0), gain=comparison(Decision.NOT_SLOWER, 0.1), is_better=True
)


def test_an_incumbent_that_runs_as_it_did_makes_the_baseline_longer() -> None:
    ending = conclusion(retune(), ended(), findings(), [])
    assert ending.outcome.verdict is Verdict.UNCHANGED
    assert ending.outcome.detail == (
        "the incumbent runs as it did: 0.1 % ± 1.0, 1 ktoken/s (25.0 % MFU), "
        "3 measurements beside 4 of the run before, which scatter by 0.4 %"
    )
    assert (ending.incumbent, ending.baseline) == (INCUMBENT, (runs(), runs(at=NIGHT)))


def test_a_regression_says_what_was_lost_since_when_and_what_differs() -> None:
    ending = conclusion(retune(time_zone="Europe/Berlin"), ended(), SLOWER, [])
    assert ending.outcome.verdict is Verdict.REGRESSION
    assert ending.outcome.detail == (
        "the incumbent lost 7.0 % ± 1.0 since 2026-03-01 03:00 CET: 930 token/s (25.0 % MFU), 3 measurements beside "
        "4 of the run before, which scatter by 0.4 %; what differs: torch was 2.12 and is 2.13"
    )
    assert ending.outcome.since == NIGHT - 86400
    assert ending.outcome.changes == (EnvironmentChange(name="torch", then="2.12", now="2.13"),)


def test_a_regression_leaves_incumbent_and_baseline_alone_even_if_another_layout_is_faster_now() -> None:
    slower_and_beaten = findings(
        runs=SLOWER.runs,
        against_baseline=SLOWER.against_baseline,
        challenger=CHALLENGER,
        challenger_runs=runs(),
        gain=comparison(change=0.1),
        is_better=True,
    )
    ending = conclusion(retune(adopts=True), ended(), slower_and_beaten, [])
    assert (ending.incumbent, ending.baseline) == (INCUMBENT, (runs(),))
    assert ending.outcome.explanation == (
        f"as things are now, {CHALLENGER} is 10.0 % ± 1.0 faster; it was not adopted",
    )


def test_a_regression_without_another_environment_says_that_all_is_as_it_was() -> None:
    same = findings(runs=runs(930.0), against_baseline=SLOWER.against_baseline)
    assert conclusion(retune(), ended(), same, []).outcome.detail.endswith(
        "all that trials record of their environment is as it was"
    )


def test_a_better_layout_is_explained_and_waits_to_be_adopted() -> None:
    ending = conclusion(retune(), ended(), BETTER, [])
    assert ending.outcome.verdict is Verdict.BETTER_FOUND
    assert ending.outcome.detail.startswith(f"{CHALLENGER} is 10.0 % ± 1.0 faster than the incumbent {INCUMBENT}")
    assert ending.outcome.explanation[0] == "tensor 1 → 2, replicate 2 → 1"
    assert ending.outcome.explanation[1].startswith("predicted: it ")
    assert (ending.incumbent, len(ending.baseline)) == (INCUMBENT, 2)


def test_a_retune_that_adopts_takes_the_better_layout_with_its_runs() -> None:
    ending = conclusion(retune(adopts=True), ended(), BETTER, [])
    assert (ending.incumbent, ending.baseline) == (CHALLENGER, (runs(1100.0),))


def test_the_first_run_without_an_incumbent_takes_the_best_that_it_found() -> None:
    found = findings(against_baseline=None)
    ending = conclusion(retune(incumbent=None, baseline=()), ended(), found, [])
    assert ending.outcome.verdict is Verdict.UNCHANGED
    assert ending.outcome.detail.startswith(f"the first run: {INCUMBENT}, the best that it found, reaches 1 ktoken/s")
    assert (ending.incumbent, ending.baseline) == (INCUMBENT, (runs(at=NIGHT),))


def test_an_incumbent_that_is_faster_than_it_was_begins_a_baseline_that_it_may_not_fall_behind() -> None:
    faster = findings(against_baseline=comparison(change=0.08))
    ending = conclusion(retune(), ended(), faster, [])
    assert ending.baseline == (runs(at=NIGHT),)
    assert "8.0 % ± 1.0 faster than it was" in ending.outcome.detail


def test_what_the_noise_hides_is_said() -> None:
    hidden = findings(against_baseline=comparison(Decision.UNDECIDED, -0.02, noise=0.05))
    ending = conclusion(retune(test=SequentialTest(loss=0.06)), ended(), hidden, [])
    assert ending.outcome.verdict is Verdict.UNCHANGED
    assert ending.outcome.detail.startswith("no loss was found, and one of 6 % not ruled out: −2.0 % ± 1.0")


@pytest.mark.parametrize(
    ("sweep", "found", "why"),
    [
        (ended(SweepState.FAILED, "no GPU"), ChallengeFindings(), "its sweep failed: no GPU"),
        (ended(), ChallengeFindings(death="rank 1 ran out of memory"), "rank 1 ran out of memory"),
        (ended(), ChallengeFindings(), "nothing was measured: tried all"),
        (
            ended(SweepState.CANCELLED, "by request"),
            findings(against_baseline=comparison(Decision.UNDECIDED)),
            "its sweep was cancelled before the incumbent was compared: by request",
        ),
    ],
)
def test_a_run_that_measured_nothing_says_why_and_changes_nothing(
    sweep: object, found: ChallengeFindings, why: str
) -> None:
    ending = conclusion(retune(), sweep, found, [])  # type: ignore[arg-type]  # all of them are sweeps
    assert (ending.outcome.verdict, ending.outcome.detail) == (Verdict.COULD_NOT_RUN, why)
    assert (ending.incumbent, ending.baseline) == (INCUMBENT, (runs(),))


def test_what_was_decided_stands_though_the_sweep_was_cancelled_later() -> None:
    assert conclusion(retune(), ended(SweepState.CANCELLED), SLOWER, []).outcome.verdict is Verdict.REGRESSION


def test_a_long_baseline_keeps_its_first_runs_and_its_last() -> None:
    baseline: tuple[object, ...] = ()
    for night in range(40):
        baseline = longer_baseline(baseline, runs(at=float(night)))  # type: ignore[arg-type]
    assert [group.at for group in baseline] == [0, 1, 2, 3, 4, *range(25, 40)]  # type: ignore[attr-defined]
