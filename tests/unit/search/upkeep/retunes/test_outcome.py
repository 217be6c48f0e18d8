"""Outcomes of runs: what they are called and what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.comparison import Challenge, ChallengeFindings, Decision, EnvironmentChange, SequentialTest
from autotuner.core.measuring import LINKS
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial, TrialState
from autotuner.core.upkeep import RetuneOutcome, RetuneRun, RetuneState, Trigger, Verdict
from autotuner.search.upkeep.retunes.outcome import outcome_of
from autotuner.search.upkeep.retunes.told import told
from tests.builders import measurement, prediction
from tests.unit.search.upkeep.builders import (
    BETTER,
    CHALLENGER,
    INCUMBENT,
    NIGHT,
    SLOWER,
    comparison,
    ended,
    findings,
    retune,
    runs,
)


def outcome(found: ChallengeFindings, sweep: Sweep | None = None, **asked: object) -> RetuneOutcome:
    return outcome_of(retune(**asked).request, sweep or ended(), found, [])


def test_an_incumbent_that_runs_as_it_did_is_unchanged() -> None:
    unchanged = outcome(findings())
    assert (unchanged.verdict, unchanged.word) == (Verdict.UNCHANGED, "unchanged")
    assert unchanged.detail == (
        "the incumbent runs as it did: +0.1 % ± 1.0, 1 ktoken/s (25.0 % MFU), "
        "3 measurements beside 4 of the run before, which scatter by 0.4 %"
    )


def test_a_regression_says_what_was_lost_since_when_and_what_differs() -> None:
    slower = outcome(SLOWER, time_zone="Europe/Berlin")
    assert slower.verdict is Verdict.REGRESSION
    assert slower.detail == (
        "the incumbent lost 7.0 % ± 1.0 since 2026-03-01 03:00 CET: 930 token/s instead of 1 ktoken/s, 3 measurements "
        "beside 4 of the run before, which scatter by 0.4 %; what differs: torch was 2.12 and is 2.13"
    )
    assert slower.since == NIGHT - 86400
    assert slower.changes == (EnvironmentChange(name="torch", then="2.12", now="2.13"),)


def test_a_regression_tells_of_a_layout_that_is_faster_now_and_does_not_call_it_better() -> None:
    slower = outcome(replace(BETTER, runs=SLOWER.runs, against_baseline=SLOWER.against_baseline), adopts=True)
    assert slower.verdict is Verdict.REGRESSION
    assert slower.explanation == (f"as things are now, {CHALLENGER} is 10.0 % ± 1.0 faster; it was not adopted",)


def test_a_regression_without_another_environment_says_that_all_is_as_it_was() -> None:
    same = replace(SLOWER, runs=runs(930.0))
    assert outcome(same).detail.endswith("all that trials record of their environment is as it was")


def test_a_better_layout_is_explained_and_waits_to_be_adopted() -> None:
    better = outcome(BETTER)
    assert better.verdict is Verdict.BETTER_FOUND
    assert better.detail.startswith(f"{CHALLENGER} is 10.0 % ± 1.0 faster than the incumbent {INCUMBENT}")
    assert better.detail.endswith("adopt it, or the incumbent stays")
    assert better.explanation[0] == "tensor 1 → 2, replicate 2 → 1"
    assert better.explanation[1].startswith("predicted: it ")


def test_a_retune_that_adopts_says_that_it_did() -> None:
    assert outcome(BETTER, adopts=True).detail.endswith("it is the incumbent from now on")


def test_a_first_run_without_an_incumbent_names_the_best_that_it_found() -> None:
    alone = replace(ended().request, challenge=Challenge())
    first = outcome(findings(against_baseline=None), replace(ended(), request=alone))
    assert (first.verdict, first.word) == (Verdict.UNCHANGED, "baseline_set")
    run = RetuneRun(
        id="rr-1", retune="nightly", due_at=NIGHT, trigger=Trigger.CRON, state=RetuneState.FINISHED, started_at=NIGHT
    )
    assert told(retune(), run, first, at=NIGHT).title == "nightly: the baseline is set"
    assert f"{INCUMBENT}, the best that was found, reaches 1 ktoken/s" in first.detail


def test_an_incumbent_that_is_faster_than_it_was_is_unchanged_and_says_so() -> None:
    faster = outcome(findings(against_baseline=comparison(change=0.08)))
    assert faster.verdict is Verdict.UNCHANGED
    assert "8.0 % ± 1.0 faster than it was" in faster.detail


def test_what_the_noise_hides_is_said() -> None:
    hidden = findings(against_baseline=comparison(Decision.UNDECIDED, -0.002, noise=0.05))
    undecided = outcome(hidden, test=SequentialTest(loss=0.06))
    assert undecided.verdict is Verdict.UNCHANGED
    assert undecided.detail.startswith("no loss was found, and one of 6 % not ruled out: −0.2 % ± 1.0")


def test_a_loss_that_was_not_decided_is_not_called_unchanged() -> None:
    disturbed = findings(against_baseline=comparison(Decision.UNDECIDED, -0.3))
    unsure = outcome(disturbed)
    assert unsure.verdict is Verdict.COULD_NOT_RUN
    assert unsure.detail.startswith("it looks as if the incumbent had become slower, and what was measured does not")


@pytest.mark.parametrize(
    ("sweep", "found", "why"),
    [
        (ended(RunState.FAILED, "no GPU"), ChallengeFindings(), "its sweep failed: no GPU"),
        (
            ended(),
            ChallengeFindings(measured=INCUMBENT, death="it died (oom): rank 1 ran out of memory"),
            f"the incumbent {INCUMBENT} could not be measured: it died (oom): rank 1 ran out of memory",
        ),
        (ended(), ChallengeFindings(), "nothing was measured: tried all"),
        (
            ended(RunState.CANCELLED, "by request"),
            findings(against_baseline=comparison(Decision.UNDECIDED)),
            "its sweep was cancelled before the incumbent was compared: by request",
        ),
    ],
)
def test_a_run_that_measured_nothing_says_why(sweep: Sweep, found: ChallengeFindings, why: str) -> None:
    nothing = outcome(found, sweep)
    assert (nothing.verdict, nothing.detail) == (Verdict.COULD_NOT_RUN, why)


def test_what_was_decided_stands_though_the_sweep_was_cancelled_later() -> None:
    assert outcome(SLOWER, ended(RunState.CANCELLED)).verdict is Verdict.REGRESSION


def test_what_was_simulated_says_so() -> None:
    trial = Trial(
        id="t", sweep_id="sw-1", number=0, state=TrialState.COMPLETE, layout=INCUMBENT, prediction=prediction()
    )
    simulated = replace(trial, measurement=measurement(is_simulated=True))
    told = [outcome_of(retune().request, ended(), found, [simulated]) for found in (findings(), SLOWER, BETTER)]
    assert {one.explanation[-1] for one in told} == {
        "nothing ran: these are times of the cost model, with seeded noise"
    }


def test_a_layout_that_is_better_on_slow_links_says_since_when_they_are_slow() -> None:
    late = {**runs(1000.0).environment, LINKS: "nodes 2 and 3: 60 ms late"}
    better = outcome(replace(BETTER, runs=replace(runs(1000.0), environment=late)))
    assert better.verdict is Verdict.BETTER_FOUND
    assert better.explanation[-1] == (
        "since 2026-03-01 02:00 UTC links have changed: of links, all healthy became nodes 2 and 3: 60 ms late"
    )
