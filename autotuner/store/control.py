"""What people change of their sweeps, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Engine, update

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.run import Run
from autotuner.core.sweep import Sweep, SweepOverview
from autotuner.core.trial import TrialState
from autotuner.store import access, interventions, overviews, records, transitions
from autotuner.store.engine import reading, writing
from autotuner.store.runs import RunStore
from autotuner.store.tables import sweeps


class ControlStore:
    """Pauses, budgets that change, and trials that run again; every method is one transaction, as in ``Store``.

    Each may be asked again without harm. A sweep that compares runs, for a retune or an MFU gate, raises ``Conflict``:
    but for ``resume`` nothing here may change it. A worker that holds the sweep hears of each when it renews its lease.
    """

    def __init__(self, engine: Engine, run_store: RunStore) -> None:
        self._engine = engine
        self._runs = run_store

    def pause(self, sweep_id: str, *, now: float) -> Sweep:
        """Have nobody work on it: at once where no worker holds it, else when its worker has given it back.

        A trial that runs is ended in good order and queued again. Where an engine still runs jobs of a sweep that
        nobody holds, the next worker to claim it ends these, and gives it back. Writes ``sweep.paused``. A finished
        sweep raises ``Conflict``.
        """
        self._runs.pause("sweep", sweep_id, now=now)
        return self._get(sweep_id)

    def resume(self, sweep_id: str, *, now: float) -> Sweep:
        """Queue it again, under its old place; one that was not paused yet goes on. Writes ``sweep.queued``.

        The time that it was paused counts for no budget. A finished sweep raises ``Conflict``.
        """
        self._runs.resume("sweep", sweep_id, now=now)
        return self._get(sweep_id)

    def change_budget(
        self, sweep_id: str, limits: Mapping[str, Any], *, now: float, caller: Caller = NOBODY_ASKED
    ) -> Sweep:
        """Put these limits in the place of what they were, others stay; a finished sweep is queued to search on.

        What its end had cut short is then queued again, too. Writes ``sweep.changed``, and ``sweep.queued`` of a sweep
        that was finished. The idempotency key goes on to match what was asked first.

        Where the caller owns the sweep, what it takes more is held to the caller's quota, as of a new sweep.

        Raises:
            InvalidInput: A limit is not legal, or the finished sweep would end by it at once.
            Conflict: The sweep ended for a reason that no budget changes.
            QuotaExceeded: The caller's quota has not so much left.
        """
        with writing(self._engine) as connection:
            run, before = self._locked(connection, sweep_id)
            so_far = overviews.get_overview(connection, sweep_id, now)
            after = interventions.change_budget(before, limits, so_far, now=now)
            after = _within_quota(connection, before, after, so_far, caller, now)
            if _searched_no_more(before) and after.interventions.ended is None and after.owner is None:
                _queue_what_was_cut_short(connection, sweep_id, now)
            return self._stored(connection, run, before, after, now)

    def rerun(self, trial_id: str, *, now: float, caller: Caller = NOBODY_ASKED) -> Sweep:
        """Have a trial run again, by itself, once what runs has ended; a finished sweep is queued to do that alone.

        The new trial repeats the first of its layout that was measured, and has no rank of its own; where none was, it
        is the first, and ranked. While one waits or runs, nothing changes. Writes ``sweep.changed``, and
        ``sweep.queued`` of a sweep that was finished.

        Raises:
            Conflict: The trial has not ended, or the sweep's time or accelerator-hours are spent.
            QuotaExceeded: The caller's quota has not so much left.
        """
        with reading(self._engine) as connection:
            sweep_id = records.get_trial(connection, trial_id).sweep_id
        with writing(self._engine) as connection:
            run, before = self._locked(connection, sweep_id)
            trial = records.get_trial(connection, trial_id)
            ended = records.get_trials(connection, sweep_id, *(state for state in TrialState if state.finished))
            num_ended = sum(one.layout == trial.layout for one in ended)
            so_far = overviews.get_overview(connection, sweep_id, now)
            after = interventions.rerun(before, trial, num_ended, so_far, now=now)
            after = _within_quota(connection, before, after, so_far, caller, now)
            return self._stored(connection, run, before, after, now)

    def _get(self, sweep_id: str) -> Sweep:
        with reading(self._engine) as connection:
            return records.get_sweep(connection, sweep_id)

    def _locked(self, connection: Connection, sweep_id: str) -> tuple[Run, Sweep]:
        return self._runs.lock(connection, "sweep", sweep_id), records.get_sweep(connection, sweep_id)

    def _stored(self, connection: Connection, run: Run, before: Sweep, after: Sweep, now: float) -> Sweep:
        """Store what changed, and its events; nothing where nothing did."""
        is_reopened = before.state.is_finished and not after.state.is_finished
        if after.demand != before.demand:
            self._runs.change(connection, run, after.demand)
            mine = update(sweeps).where(sweeps.c.id == after.id)
            connection.execute(mine.values(budget=after.request.budget))
            records.write_event(connection, after.id, "sweep.changed", transitions.demand_facts(after), now)
        if is_reopened:
            self._runs.queue_again(connection, run, now, detail="")
        return records.get_sweep(connection, after.id)


def _searched_no_more(sweep: Sweep) -> bool:
    return sweep.state.is_finished or sweep.interventions.ended is not None


def _within_quota(
    connection: Connection, before: Sweep, after: Sweep, so_far: SweepOverview, caller: Caller, now: float
) -> Sweep:
    """The changed sweep with no more accelerator-hours than its owner's quota leaves; whoever else may change it may.

    Raises:
        InvalidInput: It asks for more than the quota ever has.
        QuotaExceeded: It asks for more than is left, or is one unfinished sweep too many.
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
    """Trials that the end of their sweep cut short wait again, without the steps of their last attempt."""
    for trial in records.get_trials(connection, sweep_id, TrialState.CANCELLED):
        records.save_trial(connection, interventions.again(trial), "trial.interrupted", now)
