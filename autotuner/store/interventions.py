"""How people change a sweep that they asked for; no storage in here, so every store changes it alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.run import RunState, StopReason, SweepEnd
from autotuner.core.sweep import Budget, Rerun, Sweep, SweepOverview
from autotuner.core.trial import Trial, TrialState
from autotuner.core.units import format_seconds

_BEYOND_BUDGETS = {
    StopReason.SPACE_EXHAUSTED: "every legal layout that is likely to fit was tried; clone it with a wider space",
    StopReason.ALL_TRIALS_FAIL: "its last trials all died of what layouts do not cause; mend that, and clone it",
    StopReason.CANNOT_RUN: "nothing could run it; mend that, and clone it",
    StopReason.ERROR: "it ended by an error; clone it to try again",
}
"""Ends after which a larger budget would change nothing."""


# ---------------------------------------------------------------------- budgets
def change_budget(sweep: Sweep, limits: Mapping[str, Any], so_far: SweepOverview, *, now: float) -> Sweep:
    """With these limits in the place of what they were; a finished sweep is queued, to search on.

    Args:
        sweep: As it stands.
        limits: Fields of a budget; those that are left out stay.
        so_far: What it has spent.
        now: The time.

    Raises:
        InvalidInput: A limit is not legal, or a finished sweep would end by it at once.
        Conflict: No budget would let it go on, or it compares runs.
    """
    _require_no_challenge(sweep, "the budget of what a retune or an MFU gate measures belongs to that")
    budget = replace(sweep.request.budget, **limits)
    asked = replace(sweep, request=replace(sweep.request, budget=budget))
    ended = _end(sweep)
    if ended is None:
        return asked
    if sweep.state.is_finished or budget != sweep.request.budget:
        _require_room(sweep, ended, budget, so_far, now)
    if not sweep.state.is_finished:  # reopened to run trials again, which it does first
        return replace(asked, interventions=replace(sweep.interventions, ended=None))
    return _reopened(asked, None)


def _end(sweep: Sweep) -> SweepEnd | None:
    """How its search ended; None: it goes on, or has yet to begin."""
    if not sweep.state.is_finished:
        return sweep.interventions.ended
    assert sweep.stop_reason is not None, "what is finished has a reason"
    return SweepEnd(state=sweep.state, reason=sweep.stop_reason, detail=sweep.stop_detail)


def _require_room(sweep: Sweep, ended: SweepEnd, budget: Budget, so_far: SweepOverview, now: float) -> None:
    if ended.reason in _BEYOND_BUDGETS:
        raise Conflict(f"sweep {sweep.id} cannot go on by a larger budget: {_BEYOND_BUDGETS[ended.reason]}")
    before, worked_s = sweep.request.budget, so_far.worked_s(now)
    if budget.num_trials <= so_far.num_ran:
        rule = f"must be more than the {so_far.num_ran} trials that ran"
        raise InvalidInput("budget.num_trials", budget.num_trials, rule, so_far.num_ran + 1)
    if budget.wall_clock_s is not None and budget.wall_clock_s <= worked_s:
        rule = f"must be more than the {format_seconds(worked_s)} that it took"
        raise InvalidInput("budget.wall_clock_s", budget.wall_clock_s, rule, round(2 * worked_s) + 1)
    if budget.accelerator_hours is not None and budget.accelerator_hours <= so_far.accelerator_hours:
        rule = f"must be more than the {so_far.accelerator_hours:.3g} that were used"
        nearest = float(f"{2 * so_far.accelerator_hours:.2g}")
        raise InvalidInput("budget.accelerator_hours", budget.accelerator_hours, rule, nearest)
    if ended.reason is StopReason.NO_IMPROVEMENT and not _is_more_patient(before, budget):
        rule = "must be more, or null: it ended since so many trials in a row were no better"
        raise InvalidInput("budget.patience", budget.patience, rule, 2 * (before.patience or 1))
    if ended.reason is StopReason.NOTHING_TO_GAIN and budget.min_gain >= before.min_gain:
        rule = f"must be less than {before.min_gain:g}: it ended since less than that is expected of another trial"
        raise InvalidInput("budget.min_gain", budget.min_gain, rule, 0.0)


def _is_more_patient(before: Budget, now: Budget) -> bool:
    return now.patience is None or before.patience is None or now.patience > before.patience


# ---------------------------------------------------------------------- trials again
def rerun(sweep: Sweep, trial: Trial, num_ended: int, so_far: SweepOverview, *, now: float) -> Sweep:
    """With the trial among those that are to be run again; a finished sweep is queued, to do that alone.

    While a run again of it waits or goes on, nothing changes.

    Args:
        sweep: As it stands.
        trial: One of its own.
        num_ended: How many trials of that layout have ended.
        so_far: What the sweep has spent.
        now: The time.

    Raises:
        Conflict: The trial has not ended, the budget that passes meanwhile is spent, or the sweep compares runs.
    """
    _require_no_challenge(sweep, "what runs again there, and how often, is decided by what it compares")
    if not trial.state.finished:
        raise Conflict(f"trial {trial.id} is {trial.state.value}; once it has ended it can be run again")
    before = sweep.interventions
    if any(one.number == trial.number and one.num_runs > num_ended for one in before.reruns):
        return sweep
    _require_unspent(sweep, so_far, now)
    wanted = Rerun(number=trial.number, num_runs=num_ended + 1)
    others = tuple(one for one in before.reruns if one.number != trial.number)
    asked = replace(sweep, interventions=replace(before, reruns=(*others, wanted)))
    return _reopened(asked, _end(sweep)) if sweep.state.is_finished else asked


def _require_unspent(sweep: Sweep, so_far: SweepOverview, now: float) -> None:
    budget = sweep.request.budget
    is_late = budget.wall_clock_s is not None and so_far.worked_s(now) >= budget.wall_clock_s
    if is_late or (budget.accelerator_hours is not None and so_far.accelerator_hours >= budget.accelerator_hours):
        spent = "time" if is_late else "accelerator-hours"
        raise Conflict(f"the {spent} of sweep {sweep.id} are spent: extend its budget before a trial runs again")


def again(trial: Trial) -> Trial:
    """Queued, where the end of its sweep cut it short, so that its layout is tried after all."""
    queued = replace(trial, state=trial.state.to(TrialState.QUEUED), steps=(), stopped=None)
    return replace(queued, started_at=None, finished_at=None, attempts=0)


# ---------------------------------------------------------------------- both
def _reopened(sweep: Sweep, ended: SweepEnd | None) -> Sweep:
    """Return a finished sweep queued: to search again, or if it is told how its search ended, to run trials again."""
    return replace(sweep, state=RunState.QUEUED, interventions=replace(sweep.interventions, ended=ended))


def _require_no_challenge(sweep: Sweep, why: str) -> None:
    if sweep.request.challenge is not None:
        raise Conflict(f"sweep {sweep.id} belongs to a retune or an MFU gate: {why}")
