"""Changes that users make to a sweep after it was requested: larger budgets, and trials that run again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, update

from autotuner.core import codec
from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.run import Run, RunState, StopReason, SweepEnd
from autotuner.core.sweep import Budget, Progress, Rerun, Sweep
from autotuner.core.trial import Trial, TrialState
from autotuner.core.units import format_seconds
from autotuner.store import access, overviews, trial_changes
from autotuner.store.engine import reading, writing
from autotuner.store.events import sweep_facts, write_event
from autotuner.store.runs import Part
from autotuner.store.sweeps import get_sweep, require_no_challenge
from autotuner.store.tables import sweeps
from autotuner.store.trials import get_trial, get_trials, save_trial

_BEYOND_BUDGETS = {
    StopReason.SPACE_EXHAUSTED: (
        "every legal layout that is likely to fit was tried; clone the sweep with a wider space"
    ),
    StopReason.ALL_TRIALS_FAIL: (
        "its last trials all failed for reasons that do not depend on the layout; repair the cause, and clone the sweep"
    ),
    StopReason.CANNOT_RUN: "nothing could run the sweep; repair the cause, and clone the sweep",
    StopReason.ERROR: "it ended with an error; clone the sweep to try again",
}
"""Reasons for the end of a search that a larger budget would not change, with advice."""


class ControlStore(Part):
    """Stores the changes that people make to an existing sweep: another budget, or a trial that runs again.

    A second call of a method with the same arguments changes nothing more. Each method raises ``Conflict`` if the sweep
    compares runs for a scheduled retuning or a performance regression gate. A worker that holds the sweep learns of a
    change when it renews its lease.
    """

    def change_budget(
        self, sweep_id: str, limits: Mapping[str, Any], *, now: float, caller: Caller = NOBODY_ASKED
    ) -> Sweep:
        """Replace the given limits of a sweep's budget; other limits stay. A finished sweep continues its search.

        If the sweep was finished, it is queued again, with the trials that its end cut short. The event
        ``sweep.changed`` is written, and ``sweep.queued`` if the sweep was finished. The sweep's idempotency key still
        belongs to the original request.

        If the caller owns the sweep, the additional use is checked against the caller's quota, as for a new sweep.

        Raises:
            InvalidInput: A limit is not legal, or it would end the finished sweep again at once.
            Conflict: The sweep ended for a reason that no budget changes.
            QuotaExceeded: The additional use exceeds the rest of the caller's quota.
        """
        with writing(self._engine) as connection:
            run, before = self._locked(connection, sweep_id)
            so_far = overviews.get_overview(connection, sweep_id, now).progress
            after = changed_budget(before, limits, so_far)
            after = _within_quota(connection, before, after, so_far, caller, now)
            if _searched_no_more(before) and after.interventions.ended is None and after.owner is None:
                _queue_what_was_cut_short(connection, sweep_id, now)
            return self._stored(connection, run, before, after, now)

    def rerun(self, trial_id: str, *, now: float, caller: Caller = NOBODY_ASKED) -> Sweep:
        """Run a trial again, alone, after the running work has ended. A finished sweep is queued for this trial only.

        The new trial is a repeat of the first measured trial with the same layout. A repeat is not ranked itself. If no
        trial with the layout was measured, the new trial is not a repeat and is ranked. While the new trial waits or
        runs, another call changes nothing. The event ``sweep.changed`` is written, and ``sweep.queued`` if the sweep
        was finished.

        Raises:
            Conflict: The trial has not ended, or the sweep has used all its time or accelerator-hours.
            QuotaExceeded: The additional use exceeds the rest of the caller's quota.
        """
        with reading(self._engine) as connection:
            sweep_id = get_trial(connection, trial_id).sweep_id
        with writing(self._engine) as connection:
            run, before = self._locked(connection, sweep_id)
            trial = get_trial(connection, trial_id)
            ended = get_trials(connection, sweep_id, *(state for state in TrialState if state.finished))
            num_ended = sum(one.layout == trial.layout for one in ended)
            so_far = overviews.get_overview(connection, sweep_id, now).progress
            after = with_rerun(before, trial, num_ended, so_far)
            after = _within_quota(connection, before, after, so_far, caller, now)
            return self._stored(connection, run, before, after, now)

    def _locked(self, connection: Connection, sweep_id: str) -> tuple[Run, Sweep]:
        return self._runs.lock(connection, "sweep", sweep_id), get_sweep(connection, sweep_id)

    def _stored(self, connection: Connection, run: Run, before: Sweep, after: Sweep, now: float) -> Sweep:
        """Store the changed sweep and its events; do nothing if nothing changed."""
        is_reopened = before.state.is_finished and not after.state.is_finished
        if after.demand != before.demand:
            self._runs.change(connection, run, after.demand)
            mine = update(sweeps).where(sweeps.c.id == after.id)
            connection.execute(mine.values(budget=after.request.budget))
            facts = {**sweep_facts(after.state), **codec.to_plain(after.demand)}
            write_event(connection, after.id, "sweep.changed", facts, now)
        if is_reopened:
            self._runs.queue_again(connection, run, now, detail="")
        return get_sweep(connection, after.id)


def _searched_no_more(sweep: Sweep) -> bool:
    return sweep.state.is_finished or sweep.interventions.ended is not None


def _within_quota(
    connection: Connection, before: Sweep, after: Sweep, so_far: Progress, caller: Caller, now: float
) -> Sweep:
    """Return the changed sweep, limited to the accelerator-hours that its owner's quota leaves.

    The quota is not checked if another caller changes the sweep.

    Raises:
        InvalidInput: The change needs more hours than the whole quota.
        QuotaExceeded: The change needs more hours than are left, or would be one unfinished sweep too many.
    """
    is_reopened = before.state.is_finished and not after.state.is_finished
    had = so_far.accelerator_hours if is_reopened else before.request.budget.accelerator_hours
    wanted = after.request.budget.accelerator_hours
    grows = had is not None and (wanted is None or wanted > had)
    if caller.name != before.created_by or had is None or not (is_reopened or grows):
        return after
    access.lock_caller(connection, caller)
    more = None if wanted is None else max(0.0, wanted - had)
    allowed = access.allowed_hours(connection, caller, more, now, is_new=is_reopened)
    if wanted is not None or allowed is None:
        return after
    budget = replace(after.request.budget, accelerator_hours=had + allowed)
    return replace(after, request=replace(after.request, budget=budget))


def _queue_what_was_cut_short(connection: Connection, sweep_id: str, now: float) -> None:
    """Queue the trials that the end of the sweep interrupted, without the steps of their last attempt."""
    for trial in get_trials(connection, sweep_id, TrialState.CANCELLED):
        save_trial(connection, trial_changes.again(trial), "trial.interrupted", now)


# ---------------------------------------------------------------------- budgets
def changed_budget(sweep: Sweep, limits: Mapping[str, Any], so_far: Progress) -> Sweep:
    """Return the sweep with the given limits of its budget replaced; other limits stay the same.

    A finished sweep becomes queued.

    Args:
        sweep: The sweep as it is stored.
        limits: New values by the name of the budget's field.
        so_far: The time, accelerator-hours and trials that the sweep has used.

    Raises:
        InvalidInput: A limit is not legal, or it would end a finished sweep again at once.
        Conflict: The sweep ended for a reason that no budget changes, or it compares runs for a retuning or a gate.
    """
    require_no_challenge(sweep, "only the retune or the performance regression gate can change the budget")
    budget = replace(sweep.request.budget, **limits)
    asked = replace(sweep, request=replace(sweep.request, budget=budget))
    ended = _end(sweep)
    if ended is None:
        return asked
    if sweep.state.is_finished or budget != sweep.request.budget:
        _require_room(sweep, ended, budget, so_far)
    if not sweep.state.is_finished:  # the sweep was reopened to run trials again, and does that first
        return replace(asked, interventions=replace(sweep.interventions, ended=None))
    return _reopened(asked, None)


def _end(sweep: Sweep) -> SweepEnd | None:
    """Return how the search of the sweep ended; None if it goes on or has not begun."""
    if not sweep.state.is_finished:
        return sweep.interventions.ended
    assert sweep.stop_reason is not None, "what is finished has a reason"
    return SweepEnd(state=sweep.state, reason=sweep.stop_reason, detail=sweep.stop_detail)


def _require_room(sweep: Sweep, ended: SweepEnd, budget: Budget, spent: Progress) -> None:
    if ended.reason in _BEYOND_BUDGETS:
        raise Conflict(f"a larger budget cannot continue sweep {sweep.id}: {_BEYOND_BUDGETS[ended.reason]}")
    before = sweep.request.budget
    if budget.num_trials <= spent.num_trials:
        rule = f"must be more than {spent.num_trials}, the trials that already ran"
        raise InvalidInput("budget.num_trials", budget.num_trials, rule, spent.num_trials + 1)
    if budget.wall_clock_s is not None and budget.wall_clock_s <= spent.elapsed_s:
        rule = f"must be more than {format_seconds(spent.elapsed_s)}, the time that the sweep already took"
        raise InvalidInput("budget.wall_clock_s", budget.wall_clock_s, rule, math.floor(spent.elapsed_s) + 1)
    if budget.accelerator_hours is not None and budget.accelerator_hours <= spent.accelerator_hours:
        rule = f"must be more than {spent.accelerator_hours:.3g}, the accelerator-hours that were already used"
        raise InvalidInput("budget.accelerator_hours", budget.accelerator_hours, rule)
    if ended.reason is StopReason.NO_IMPROVEMENT and not _is_more_patient(before, budget):
        rule = (
            f"must be more than {before.patience}, or null, because the sweep ended after that number of trials "
            "without a better one"
        )
        raise InvalidInput("budget.patience", budget.patience, rule, (before.patience or 0) + 1)
    if ended.reason is StopReason.NOTHING_TO_GAIN and budget.min_gain >= before.min_gain:
        rule = (
            f"must be less than {before.min_gain:g}, because the sweep ended when another trial was "
            f"expected to gain less than that; for example {before.min_gain / 2:g}"
        )
        raise InvalidInput("budget.min_gain", budget.min_gain, rule)


def _is_more_patient(before: Budget, now: Budget) -> bool:
    return now.patience is None or before.patience is None or now.patience > before.patience


# ---------------------------------------------------------------------- trials again
def with_rerun(sweep: Sweep, trial: Trial, num_ended: int, so_far: Progress) -> Sweep:
    """Return the sweep with a request to run the trial again. A finished sweep is queued for this trial only.

    If a repeat of the trial already waits or runs, the sweep is returned unchanged.

    Args:
        sweep: The sweep as it is stored.
        trial: The trial to run again.
        num_ended: Number of trials with this trial's layout that have ended.
        so_far: The time and accelerator-hours that the sweep has used.

    Raises:
        Conflict: The trial has not ended, the sweep has used all its time or accelerator-hours, or it compares runs.
    """
    require_no_challenge(sweep, "the comparison decides which trials run again, and how often")
    if not trial.state.finished:
        raise Conflict(f"trial {trial.id} is {trial.state.value}; it can run again only after it has ended")
    before = sweep.interventions
    if any(one.number == trial.number and one.num_runs > num_ended for one in before.reruns):
        return sweep
    _require_unspent(sweep, so_far)
    wanted = Rerun(number=trial.number, num_runs=num_ended + 1)
    others = tuple(one for one in before.reruns if one.number != trial.number)
    asked = replace(sweep, interventions=replace(before, reruns=(*others, wanted)))
    return _reopened(asked, _end(sweep)) if sweep.state.is_finished else asked


def _require_unspent(sweep: Sweep, used: Progress) -> None:
    budget = sweep.request.budget
    is_late = budget.wall_clock_s is not None and used.elapsed_s >= budget.wall_clock_s
    if is_late or (budget.accelerator_hours is not None and used.accelerator_hours >= budget.accelerator_hours):
        spent = "time" if is_late else "accelerator-hours"
        raise Conflict(f"the {spent} of sweep {sweep.id} are used up: extend its budget before a trial runs again")


# ---------------------------------------------------------------------- both
def _reopened(sweep: Sweep, ended: SweepEnd | None) -> Sweep:
    """Return the finished sweep in the queue again.

    With ``ended``, how its search ended, it only runs trials again; without, it continues to search.
    """
    return replace(sweep, state=RunState.QUEUED, interventions=replace(sweep.interventions, ended=ended))
