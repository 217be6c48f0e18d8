"""Sweeps as durable runs: created within a quota, read, listed and cancelled, with the changes that their runs make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import announce_end
from autotuner.core.cluster import Cluster
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.run import Finish, NewRun, Run, RunState, Stop, StopReason
from autotuner.core.sweep import (
    Budget,
    Demand,
    Interventions,
    Sweep,
    SweepOverview,
    SweepRequest,
    SweepResult,
    SweepRun,
    job_key,
)
from autotuner.core.trial import Stopped, TrialState
from autotuner.store import access, announcements, overviews, trial_changes, trials
from autotuner.store.descriptions import new_id
from autotuner.store.engine import AnyRow, AnySelect, one_row, reading, writing
from autotuner.store.events import sweep_facts, write_event
from autotuner.store.options import ALL_SWEEPS, NEWEST_FIRST, Page, SweepFilter, SweepOrder
from autotuner.store.runs import Part, Rows, another_request, insert_run, key_of_caller, read_lease
from autotuner.store.tables import read_document, runs, sweeps

_OF_RUN = (
    *("id", "state", "created_at", "started_at", "finished_at", "created_by", "wanted", "detail", "request", "demand"),
    *("idle_since", "idle_s", "num_reopened", "owner", "claim", "renewals", "lease_s"),
)

_SWEEPS: AnySelect = select(
    *(runs.c[name] for name in _OF_RUN), sweeps.c.stop_reason, sweeps.c.expected_improvement
).select_from(sweeps.join(runs, runs.c.id == sweeps.c.id))

_BUDGETS = (StopReason.TRIAL_BUDGET, StopReason.TIME_BUDGET, StopReason.ACCELERATOR_HOURS_BUDGET)

_EVENTS = {RunState.PAUSED: "sweep.paused", RunState.QUEUED: "sweep.queued"}
"""Events for changes of state that have no event of their own."""


class SweepStore(Part):
    """The store of sweeps.

    A write to a sweep first locks the row of the sweep's run (on SQLite: the database). Therefore writes to one sweep
    happen one after another, and its events become visible in the order of their sequence numbers.
    """

    def create_sweep(
        self,
        request: SweepRequest,
        *,
        now: float,
        idempotency_key: str | None = None,
        caller: Caller = NOBODY_ASKED,
    ) -> tuple[Sweep, bool]:
        """Queue a new sweep of the caller and return it with True, or return the sweep of an earlier call with False.

        If the same caller used the idempotency key before with an equal request, the stored sweep is returned, even if
        its budget has changed since then. If the earlier request was different, ``Conflict`` is raised. Two concurrent
        calls with one key create one sweep. A new sweep writes the event ``sweep.created``.

        A new sweep is checked against the caller's quota, even if many sweeps are created at the same time. If the
        quota is used up, ``QuotaExceeded`` is raised. If the quota limits accelerator-hours, the sweep gets at most the
        hours that are left.
        """
        key = key_of_caller("sweep", caller, idempotency_key)
        try:
            with writing(self._engine) as connection:
                access.lock_caller(connection, caller)
                if found := _find_created(connection, request, key):
                    return found, False  # even if the quota is used up now
                return queue_sweep(connection, request, now, caller=caller, unique_key=key), True
        except IntegrityError:  # a concurrent request used the same key
            with reading(self._engine) as connection:
                if found := _find_created(connection, request, key):
                    return found, False
            raise

    def get_sweep(self, sweep_id: str) -> Sweep:
        """Return a sweep as it is stored now; raise ``NotFound`` if it is not stored."""
        with reading(self._engine) as connection:
            return get_sweep(connection, sweep_id)

    def overview(self, sweep_id: str, *, now: float) -> SweepOverview:
        """Return the overview of a sweep: its state, the numbers of its trials, and its best trial.

        No trial is decoded.
        """
        with reading(self._engine) as connection:
            return overviews.get_overview(connection, sweep_id, now)

    def list_overviews(
        self, *, now: float, where: SweepFilter = ALL_SWEEPS, order: SweepOrder = NEWEST_FIRST, page: Page = Page()
    ) -> tuple[Sequence[SweepOverview], int]:
        """Return one page of overviews of the sweeps that match the filter, and the number of sweeps that match.

        The number of queries does not depend on the number of sweeps.
        """
        with reading(self._engine) as connection:
            return overviews.list_overviews(connection, where, order, page, now)

    def sweep_owners(self) -> Sequence[str]:
        """Return the names of all callers who own a sweep, in alphabetical order."""
        with reading(self._engine) as connection:
            return connection.scalars(overviews.select_owners()).all()

    def request_cancel(self, sweep_id: str, *, now: float) -> Sweep:
        """Ask for the end of a sweep: its worker ends it, or it ends at once if no worker holds it.

        If no worker holds the sweep but an engine still runs its jobs, the next worker that claims the sweep ends the
        jobs and the sweep. A finished sweep stays unchanged.
        """
        try:
            self._runs.cancel("sweep", sweep_id, "cancelled while no worker ran it", now=now)
        except InvalidInput as problem:
            self._runs.fail_unreadable("sweep", sweep_id, problem, now=now)
            raise Conflict(
                f"this release cannot read the stored sweep {sweep_id}, so the sweep has ended as failed; "
                "create it again"
            ) from problem
        return self.get_sweep(sweep_id)


# ---------------------------------------------------------------------- on a connection
def get_sweep(connection: Connection, sweep_id: str) -> Sweep:
    """Return a sweep as it is stored now; raise ``NotFound`` if it is not stored."""
    return _read_sweep(one_row(connection, _SWEEPS.where(sweeps.c.id == sweep_id), "sweep", sweep_id))


def _read_sweep(row: AnyRow) -> Sweep:
    """Return the sweep in a row of ``_SWEEPS``. Its request has the current budget.

    Raises:
        Unreadable: Another release wrote the sweep.
    """
    asked, demand = read_document(SweepRequest, row.request), read_document(Demand, row.demand)
    return Sweep(
        id=row.id,
        request=replace(asked, budget=demand.budget),
        state=row.state,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cancel_requested=row.wanted is Stop.CANCEL,
        stop_reason=row.stop_reason,
        stop_detail=row.detail,
        created_by=row.created_by,
        pause_requested=row.wanted is Stop.PAUSE,
        lease=read_lease(row),
        interventions=Interventions(
            idle_since=row.idle_since,
            idle_s=row.idle_s,
            num_reopened=row.num_reopened,
            reruns=demand.reruns,
            ended=None if row.state.is_finished else demand.ended,
        ),
        expected_improvement=row.expected_improvement,
    )


# ---------------------------------------------------------------------- new sweeps
def queue_sweep(
    connection: Connection,
    request: SweepRequest,
    now: float,
    *,
    caller: Caller = NOBODY_ASKED,
    unique_key: str | None = None,
    parent_id: str | None = None,
) -> Sweep:
    """Store and return a new, queued sweep of the caller, after a check against the caller's quota.

    ``parent_id`` is the id of the retune run or the gate to which the sweep belongs. The outcome is then announced by
    the parent. None: the sweep announces its own end.

    Raises:
        InvalidInput: The sweep asks for more accelerator-hours than the caller's quota ever allows.
        QuotaExceeded: The sweep asks for more than the rest of the quota.
    """
    access.lock_caller(connection, caller)
    held = _held(connection, request, caller, now)
    new = NewRun(
        id=new_id("sw"),
        kind="sweep",
        request=request,
        demand=Demand(budget=held.budget),
        created_by=caller.name,
        unique_key=unique_key,
        parent_id=parent_id,
        due_at=0.0,
    )
    insert_run(connection, new, now)
    sweep = Sweep(id=new.id, request=held, state=RunState.QUEUED, created_at=now, created_by=caller.name)
    _insert_sweep(connection, sweep)
    write_event(connection, sweep.id, "sweep.created", sweep_facts(sweep.state), now)
    return sweep


def _held(connection: Connection, request: SweepRequest, caller: Caller, now: float) -> SweepRequest:
    """Return the request with its accelerator-hours limited to what the caller's quota leaves."""
    asked: Budget = request.budget
    hours = access.allowed_hours(connection, caller, asked.accelerator_hours, now)
    if hours == asked.accelerator_hours:
        return request
    return replace(request, budget=replace(asked, accelerator_hours=hours))


def _insert_sweep(connection: Connection, sweep: Sweep) -> None:
    """Store the columns of a new sweep that lists show; its run is stored separately."""
    request = sweep.request
    values = {
        "id": sweep.id,
        "created_at": sweep.created_at,
        "created_by": sweep.created_by,
        "state": sweep.state,
        "name": request.name,
        "model": request.job.model.name,
        "cluster": request.job.cluster.name,
        "engine": request.runs_on.engine,
        "trial_cluster": request.trial_cluster.name if request.trial_cluster else None,
        **{field.name: getattr(request.objective, field.name) for field in fields(request.objective)},
        "budget": request.budget,
        "accelerator": request.runs_on.accelerator.name,
        "stack": request.job.stack.name,
        "job_key": job_key(request),
    }
    connection.execute(insert(sweeps).values(values))


def _find_created(connection: Connection, request: SweepRequest, key: str | None) -> Sweep | None:
    """Return the sweep that the caller created with this idempotency key; None if there is none.

    Raises:
        Conflict: The key was used for another request.
    """
    row = None if key is None else connection.execute(_SWEEPS.where(runs.c.unique_key == key)).one_or_none()
    if row is None:
        return None
    if _as_asked(read_document(SweepRequest, row.request)) != _as_asked(request):
        raise another_request("sweep", row.id)
    return _read_sweep(row)


def _as_asked(request: SweepRequest) -> SweepRequest:
    """Return the request without the measured rates of its clusters, since each measurement differs a little."""
    asked = replace(request, job=replace(request.job, cluster=_unmeasured(request.job.cluster)))
    few = asked.trial_cluster
    return asked if few is None else replace(asked, trial_cluster=_unmeasured(few))


def _unmeasured(cluster: Cluster) -> Cluster:
    accelerator = cluster.accelerator
    if not accelerator.peak_is_measured:
        return cluster
    return replace(cluster, accelerator=replace(accelerator, fp32_flop_per_s=1.0, bf16_flop_per_s=1.0))


# ---------------------------------------------------------------------- in the transaction that changes the run
def _claimed(connection: Connection, run: Run, now: float) -> None:
    """Queue the trials that the last worker left running, and write the event that the sweep has started or resumed."""
    for trial in trials.get_trials(connection, run.id, TrialState.RUNNING, TrialState.WAITING):
        trials.save_trial(connection, trial_changes.take_over(trial), "trial.interrupted", now)
    kind = "sweep.started" if run.started_at is None else "sweep.resumed"
    write_event(connection, run.id, kind, sweep_facts(RunState.RUNNING), now)


def _set_state(connection: Connection, run_id: str, state: RunState, now: float) -> None:
    unfinished = {"state": state, "finished_at": None, "stop_reason": None}
    connection.execute(update(sweeps).where(sweeps.c.id == run_id).values(unfinished))
    if state in _EVENTS:
        write_event(connection, run_id, _EVENTS[state], sweep_facts(state), now)


def _end(connection: Connection, run_id: str, end: Finish, now: float) -> None:
    """End the trials and announce the end of the sweep, unless a retuning or a gate announces its own outcome."""
    result: SweepResult | None = end.result
    by_itself = StopReason.CANCELLED if end.state is RunState.CANCELLED else StopReason.ERROR
    reason = by_itself if result is None else result.reason
    ended = {"state": end.state, "finished_at": now, "stop_reason": reason}
    if result is not None and result.expected_improvement is not None:
        ended["expected_improvement"] = result.expected_improvement
    connection.execute(update(sweeps).where(sweeps.c.id == run_id).values(ended))
    stopped = Stopped(reason="budget" if reason in _BUDGETS else "cancelled", detail=end.detail)
    trials.end_trials(connection, run_id, stopped, now)
    facts = sweep_facts(end.state, reason, end.detail)
    write_event(connection, run_id, "sweep.finished", facts, now)
    if connection.scalar(select(runs.c.parent_id).where(runs.c.id == run_id)) is None:
        announcements.tell(connection, announce_end(overviews.get_overview(connection, run_id, now)))


def _ended(run: SweepRun, end: Finish) -> Finish:
    """Return how a sweep ends. If it was reopened only to run trials again, a cancel leaves the end of its search."""
    if end.state is not RunState.CANCELLED:
        return end
    demand = run.demand
    if demand.ended is None:
        return replace(end, result=SweepResult(reason=StopReason.CANCELLED))
    ended = demand.ended
    return Finish(state=ended.state, detail=ended.detail, result=SweepResult(reason=ended.reason))


def require_no_challenge(sweep: Sweep | SweepRun, why: str) -> None:
    """Raise ``Conflict`` if the sweep compares runs for a retuning or a performance regression gate.

    ``why`` is the reason in the message of the error.
    """
    if sweep.request.challenge is not None:
        raise Conflict(f"sweep {sweep.id} belongs to a retune or a performance regression gate: {why}")


SWEEP_ROWS = Rows(
    run=SweepRun,
    goes_on_by="extend its budget, or run a trial of it again",
    on_claim=_claimed,
    on_state=_set_state,
    on_end=_end,
    ended=_ended,
    has_jobs=lambda connection, run: trials.has_jobs(connection, run.id),
    check_pause=lambda run: require_no_challenge(run, "the runs that are compared must run without a pause"),
)
"""Describes sweeps to the store of runs."""
