"""Sweeps as runs: what changes in other tables in the transaction that changes the run of a sweep."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select, update

from autotuner.core.announcement import announce_end
from autotuner.core.errors import Conflict
from autotuner.core.run import Finish, Run, RunState, StopReason
from autotuner.core.sweep import Demand, SweepRequest, SweepResult
from autotuner.core.trial import Stopped, TrialState
from autotuner.store import announcements, overviews, records, transitions
from autotuner.store.runs import Rows
from autotuner.store.tables import runs, sweeps

_BUDGETS = (StopReason.TRIAL_BUDGET, StopReason.TIME_BUDGET, StopReason.ACCELERATOR_HOURS_BUDGET)

_EVENTS = {RunState.PAUSED: "sweep.paused", RunState.QUEUED: "sweep.queued"}
"""Events of changes of state that no other event tells."""


def _claimed(connection: Connection, run: Run, now: float) -> None:
    """Queue the trials whose worker is gone, and tell that the sweep goes on."""
    for trial in records.get_trials(connection, run.id, TrialState.RUNNING, TrialState.WAITING):
        records.save_trial(connection, transitions.take_over(trial), "trial.interrupted", now)
    kind = "sweep.started" if run.started_at is None else "sweep.resumed"
    records.write_event(connection, run.id, kind, transitions.sweep_facts(RunState.RUNNING), now)


def _set_state(connection: Connection, run_id: str, state: RunState, now: float) -> None:
    unfinished = {"state": state, "finished_at": None, "stop_reason": None}
    connection.execute(update(sweeps).where(sweeps.c.id == run_id).values(unfinished))
    if state in _EVENTS:
        records.write_event(connection, run_id, _EVENTS[state], transitions.sweep_facts(state), now)


def _end(connection: Connection, run_id: str, end: Finish, now: float) -> None:
    """End the trials, and tell it: to everybody, unless a retune or a gate tells of its own outcome."""
    result: SweepResult | None = end.result
    by_itself = StopReason.CANCELLED if end.state is RunState.CANCELLED else StopReason.ERROR
    reason = by_itself if result is None else result.reason
    ended = {"state": end.state, "finished_at": now, "stop_reason": reason}
    if result is not None and result.prospects is not None:
        ended["prospects"] = result.prospects
    connection.execute(update(sweeps).where(sweeps.c.id == run_id).values(ended))
    stopped = Stopped(reason="budget" if reason in _BUDGETS else "cancelled", detail=end.detail)
    records.end_trials(connection, run_id, stopped, now)
    facts = transitions.sweep_facts(end.state, reason, end.detail)
    records.write_event(connection, run_id, "sweep.finished", facts, now)
    if connection.scalar(select(runs.c.parent_id).where(runs.c.id == run_id)) is None:
        announcements.tell(connection, announce_end(overviews.get_overview(connection, run_id, now)))


def _cancelled(run: Run, end: Finish) -> Finish:
    """Return how a sweep ends that is cancelled: as its search did if it was reopened only to run trials again."""
    demand: Demand = run.demand
    if demand.ended is None:
        return replace(end, result=SweepResult(reason=StopReason.CANCELLED))
    ended = demand.ended
    return Finish(state=ended.state, detail=ended.detail, result=SweepResult(reason=ended.reason))


def _has_jobs(connection: Connection, run: Run) -> bool:
    return records.has_jobs(connection, run.id)


def _check_pause(run: Run) -> None:
    request: SweepRequest = run.request
    if request.challenge is not None:
        why = "pausing it would part runs that are to be compared in one sitting"
        raise Conflict(f"sweep {run.id} belongs to a retune or an MFU gate: {why}")


SWEEP_ROWS = Rows(
    request=SweepRequest,
    demand=Demand,
    result=SweepResult,
    goes_on_by="extend its budget, or run a trial of it again",
    on_claim=_claimed,
    on_state=_set_state,
    on_end=_end,
    cancelled=_cancelled,
    has_jobs=_has_jobs,
    check_pause=_check_pause,
)
"""What the store of runs must know of sweeps."""
