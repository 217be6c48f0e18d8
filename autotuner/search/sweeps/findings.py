"""What the trials of a challenged sweep say: how the incumbent does, and whether another layout is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotuner.core.comparison import Challenge, ChallengeFindings, Comparison, Decision, RunGroup
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.sequential_test import compare
from autotuner.search.sweeps.challenge_runs import ChallengeRuns, incumbent_problems, run_group


def findings(request: SweepRequest, trials: Iterable[Trial]) -> ChallengeFindings:
    """What is known by these trials; of a sweep that runs, what is known so far, and without a challenge nothing."""
    challenge = request.challenge
    if challenge is None:
        return ChallengeFindings()
    runs = ChallengeRuns.of(request, challenge, trials)
    if challenge.incumbent is None:
        return _of_the_best(challenge, runs)
    found = ChallengeFindings(measured=challenge.incumbent, death=_death(request, runs))
    own = runs.incumbent_runs
    if own is not None:
        found = replace(found, runs=own, against_baseline=_beside_baseline(challenge, own))
    return _with_challenger(found, challenge, runs)


def _of_the_best(challenge: Challenge, runs: ChallengeRuns) -> ChallengeFindings:
    """Without an incumbent the best stands beside the baseline, by its later runs: the first is why it is the best."""
    if runs.challenger is None:
        return ChallengeFindings()
    later = run_group(runs.turns)
    beside = _beside_baseline(challenge, later) if later else None
    return ChallengeFindings(measured=runs.challenger.layout, runs=later, against_baseline=beside)


def _with_challenger(found: ChallengeFindings, challenge: Challenge, runs: ChallengeRuns) -> ChallengeFindings:
    if runs.challenger is None:
        return found
    theirs, own = run_group(runs.turns), run_group(runs.incumbent_turns)
    found = replace(found, challenger=runs.challenger.layout, challenger_runs=theirs)
    if theirs is None or own is None:
        return found
    gain = compare([own], [theirs], challenge.test, same_sitting=True)
    lost = compare([theirs], [own], challenge.test, same_sitting=True)
    return replace(found, gain=gain, is_better=lost.decision is Decision.SLOWER)


def _beside_baseline(challenge: Challenge, runs: RunGroup) -> Comparison | None:
    return compare(challenge.baseline, [runs], challenge.test) if challenge.baseline else None


def _death(request: SweepRequest, runs: ChallengeRuns) -> str:
    """Why the incumbent never ran; empty where it did, or was not tried yet."""
    if broken := incumbent_problems(request):
        return f"it cannot run here: {broken[0].message}"
    if runs.incumbent_runs is not None or not runs.incumbent:
        return ""
    return _last_words(runs.incumbent)


def _last_words(deaths: Sequence[Trial]) -> str:
    last = deaths[-1]
    if last.failure is None:
        return "it ended without a measurement"
    return f"it died ({last.failure.kind.value}): {last.failure.message}"
