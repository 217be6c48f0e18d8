"""How often a trial is started before it is given up, and what is said of it then."""

from __future__ import annotations

from autotuner.core.trial import EngineJobPhase, FailureKind, Outcome, Stopped, Trial, TrialFailure

MAX_ATTEMPTS = 3
"""Starts of one trial before what ends it is taken to come again; finding a job that goes on is no start."""


def given_up(trial: Trial) -> TrialFailure | None:
    """How a queued trial ends that was started often enough; None where it may be started, or is to be found again."""
    if trial.job_goes_on or trial.attempts < MAX_ATTEMPTS:
        return None
    last = trial.jobs[-1] if trial.jobs else None
    if last is not None and last.phase is EngineJobPhase.LOST:
        return _lost(trial, last.detail)
    message = f"interrupted {trial.attempts} times; the service dies when it runs"
    return TrialFailure(kind=FailureKind.INTERRUPTED, message=message)


def unless_lost_again(trial: Trial, outcome: Outcome) -> Outcome:
    """The outcome of a running trial, which is a failure where its last attempt was lost to no fault of its own."""
    if isinstance(outcome, Stopped) and outcome.reason == "infrastructure" and trial.attempts >= MAX_ATTEMPTS:
        return _lost(trial, outcome.detail)
    return outcome


def _lost(trial: Trial, detail: str) -> TrialFailure:
    message = lost_in_words(trial.attempts, detail, on_engine=bool(trial.jobs))
    return TrialFailure(kind=FailureKind.INFRASTRUCTURE, message=message)


def lost_in_words(num_attempts: int, detail: str, *, on_engine: bool) -> str:
    """Say that something was lost in each of its attempts, and how the last of them ended."""
    last = f"; the last time: {detail}" if detail else ""
    what = "its nodes were lost or never came" if on_engine else "its ranks were killed or found no room"
    return f"{what} in {num_attempts} attempts{last}"
