"""Health: the numbers of the store that an operator watches, and the state of the workers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from autotuner.core.access import DAY_S
from autotuner.core.health import Incident, IncidentKind, KnownWorker
from autotuner.core.run import OPEN, RunState
from autotuner.core.trial import TrialState
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.store.engine import AnySelect, reading, select_values, values_of, writing
from autotuner.store.runs import NEWEST, Part
from autotuner.store.tables import runs, sweeps, trials, workers

_HOUR_S = 3600.0

_SHOWN_S = 7 * DAY_S
"""Seconds for which a failed sweep, gate or delivery is shown as an incident: one week."""

_OUTCOMES = {
    RegressionGateOutcome.FAILED.value: IncidentKind.GATE_FAILED,
    RegressionGateOutcome.UNDECIDED.value: IncidentKind.GATE_UNDECIDED,
}
"""Kinds of incidents by the outcome of a gate that measured; gates with other outcomes could not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Numbers that show the load of the service at one moment, such as sweeps by state, for monitoring."""

    num_sweeps: Mapping[RunState, int]
    """Number of sweeps by state; states without any are left out."""
    num_open_trials: Mapping[TrialState, int]
    """Number of open trials of unfinished sweeps, by state."""
    num_ended_trials: Mapping[TrialState, int]
    """Number of trials that ended within the last hour, by state."""
    oldest_queued_at: float | None
    """Creation time of the sweep that waits longest; None if none waits."""
    num_pending_deliveries: int
    oldest_pending_at: float | None
    """Creation time of the delivery that is pending longest; None if none is pending."""


class Health(Part):
    """The figures that an operator watches: gauges, incidents that nobody has fixed yet, and the known workers."""

    def gauges(self, *, now: float) -> Gauges:
        """Return all gauges at the time ``now``. The queries do not become slower as more sweeps end."""
        num = func.count()
        by_state = select(sweeps.c.state, num).group_by(sweeps.c.state)
        of_open = select(trials.c.state, num).join_from(sweeps, trials, trials.c.sweep_id == sweeps.c.id)
        is_open = sweeps.c.state.in_(state for state in RunState if not state.is_finished)
        ended = select(trials.c.state, num).where(trials.c.finished_at > now - _HOUR_S).group_by(trials.c.state)
        waiting = select(func.min(sweeps.c.created_at)).where(sweeps.c.state == RunState.QUEUED)
        deliveries = select(num, func.min(runs.c.created_at)).where(runs.c.kind == "delivery", runs.c.state.in_(OPEN))
        with reading(self._engine) as connection:
            num_pending, oldest_pending_at = connection.execute(deliveries).one()
            return Gauges(
                num_sweeps=dict(connection.execute(by_state).all()),
                num_open_trials=dict(connection.execute(of_open.where(is_open).group_by(trials.c.state)).all()),
                num_ended_trials=dict(connection.execute(ended).all()),
                oldest_queued_at=connection.scalar(waiting),
                num_pending_deliveries=num_pending,
                oldest_pending_at=oldest_pending_at,
            )

    def attention(self, *, now: float) -> Sequence[Incident]:
        """Return all incidents that need an operator's attention now.

        Kinds are ordered by seriousness, the most serious first. Within a kind, the newest incident comes first.
        """
        return [*self._unattended(now), *self.incidents(since=now - _SHOWN_S)]

    def _unattended(self, now: float) -> list[Incident]:
        """Return one incident if sweeps wait in the queue and no worker is alive."""
        if any(worker.is_alive(now) for worker in self.workers()):
            return []
        found = self.gauges(now=now)
        waiting = found.num_sweeps.get(RunState.QUEUED, 0)
        if not waiting or found.oldest_queued_at is None:
            return []
        said = "1 sweep waits" if waiting == 1 else f"{waiting:,} sweeps wait"
        kind, detail = IncidentKind.NO_WORKER, f"{said}, and no worker has given a sign of life for a minute"
        return [Incident(kind=kind, subject="", name="", detail=detail, at=found.oldest_queued_at, count=waiting)]

    def incidents(self, *, since: float, limit: int = 20) -> Sequence[Incident]:
        """Return incidents that are not fixed yet, at most ``limit`` of each kind.

        They are ordered by kind. Within a kind, the newest incident comes first.

        The kinds are:

        - Scheduled retunings whose last finished run found a regression or could not run, at any time.
        - Performance regression gates that failed, stayed undecided or could not run after ``since``.
        - Sweeps that failed after ``since``. Sweeps of retunings and gates are left out. A sweep is also left out if a
          later sweep has measured exactly the same job.
        - Clusters whose last finished check failed, at any time.
        - Webhooks with deliveries that failed finally after ``since`` and were not sent again: one incident for each
          webhook.
        """
        with reading(self._engine) as connection:
            found = (
                *_of_retunes(connection, limit),
                *_of_gates(connection, since, limit),
                *_of_sweeps(connection, since, limit),
                *_of_clusters(connection, limit),
                *_of_webhooks(connection, since, limit),
            )
        kinds = list(IncidentKind)
        return sorted(found, key=lambda incident: (kinds.index(incident.kind), -incident.at))

    # ------------------------------------------------------------------ workers, by their heartbeats
    def tell(self, worker: KnownWorker) -> None:
        """Store a worker's heartbeat in place of its earlier heartbeat.

        Delete workers without a heartbeat for a day.
        """
        replaced = (workers.c.name == worker.name) | (workers.c.seen_at < worker.seen_at - DAY_S)
        with writing(self._engine) as connection:
            connection.execute(delete(workers).where(replaced))
            connection.execute(insert(workers).values(values_of(worker)))

    def forget(self, name: str) -> None:
        """Delete the record of the worker ``name``, because it has stopped. If it is not stored, nothing happens."""
        with writing(self._engine) as connection:
            connection.execute(delete(workers).where(workers.c.name == name))

    def workers(self) -> Sequence[KnownWorker]:
        """Return all workers that sent a heartbeat lately, ordered by their last heartbeat, latest first."""
        newest_first = select_values(workers, KnownWorker).order_by(workers.c.seen_at.desc(), workers.c.name)
        with reading(self._engine) as connection:
            return [KnownWorker(**row._mapping) for row in connection.execute(newest_first)]


# ---------------------------------------------------------------------- retunes and clusters
def select_last(kind: str) -> AnySelect:
    """Return the query for runs of a kind that failed and that are the newest finished run of their subject.

    A subject is, for example, the retune or the cluster to which the run belongs. Cancelled runs do not count.
    """
    others = runs.alias("others")
    ended = others.c.state.in_((RunState.COMPLETE, RunState.FAILED))
    mine = (others.c.kind == kind) & (others.c.subject == runs.c.subject) & ended
    newest = select(others.c.id).where(mine).order_by(others.c.created_at.desc(), others.c.id.desc())
    last = newest.limit(1).scalar_subquery()
    return (
        select(runs.c.subject, runs.c.finished_at, runs.c.detail, runs.c.result)
        .where(runs.c.kind == kind, runs.c.state == RunState.FAILED, runs.c.id == last)
        .order_by(*NEWEST)
    )


def _fields(text: str | None) -> dict[str, Any]:
    """Return the fields of a stored document of any release; empty if there is none."""
    return {} if text is None else json.loads(text)


def _of_retunes(connection: Connection, limit: int) -> Iterator[Incident]:
    for row in connection.execute(select_last("retune").limit(limit)):
        is_slower = _fields(row.result).get("verdict") == Verdict.REGRESSION.value
        kind = IncidentKind.REGRESSION if is_slower else IncidentKind.RETUNE_COULD_NOT_RUN
        yield Incident(kind=kind, subject=row.subject, name=row.subject, detail=row.detail, at=row.finished_at)


def _of_clusters(connection: Connection, limit: int) -> Iterator[Incident]:
    for name, at, detail, _ in connection.execute(select_last("check").limit(limit)):
        yield Incident(kind=IncidentKind.CHECK_FAILED, subject=name, name=name, detail=detail, at=at)


# ---------------------------------------------------------------------- gates
def select_failed(kind: str, since: float) -> AnySelect:
    """Return the query for runs of a kind that failed after ``since``, newest first."""
    failed = (runs.c.kind == kind) & (runs.c.state == RunState.FAILED) & (runs.c.finished_at > since)
    columns = (runs.c.id, runs.c.subject, runs.c.detail, runs.c.finished_at, runs.c.result, runs.c.request)
    return select(*columns).where(failed).order_by(*NEWEST)


def _of_gates(connection: Connection, since: float, limit: int) -> Iterator[Incident]:
    for row in connection.execute(select_failed("gate", since).limit(limit)):
        name = _fields(row.request).get("gate", {}).get("software") or f"gate of {row.subject}"
        kind = _OUTCOMES.get(_fields(row.result).get("outcome", ""), IncidentKind.GATE_COULD_NOT_RUN)
        yield Incident(kind=kind, subject=row.id, name=name, detail=row.detail, at=row.finished_at)


# ---------------------------------------------------------------------- sweeps
def select_sweeps(since: float) -> AnySelect:
    """Return the query for sweeps that failed after ``since`` and whose job was not measured by a later sweep.

    Sweeps that belong to a retuning or a gate are left out.
    """
    later = sweeps.alias("later")
    measured = (later.c.job_key == sweeps.c.job_key) & (later.c.created_at > sweeps.c.created_at)
    mended = select(later.c.id).where(measured, later.c.state == RunState.COMPLETE).exists()
    columns = (sweeps.c.id, sweeps.c.name, sweeps.c.model, sweeps.c.cluster)
    return (
        select(*columns, runs.c.detail.label("stop_detail"), sweeps.c.finished_at)
        .join_from(sweeps, runs, runs.c.id == sweeps.c.id)
        .where(sweeps.c.state == RunState.FAILED, sweeps.c.finished_at > since, ~mended, runs.c.parent_id.is_(None))
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
    )


def _of_sweeps(connection: Connection, since: float, limit: int) -> Iterator[Incident]:
    for row in connection.execute(select_sweeps(since).limit(limit)):
        name = row.name or f"{row.model} on {row.cluster}"
        kind, detail = IncidentKind.SWEEP_FAILED, row.stop_detail
        yield Incident(kind=kind, subject=row.id, name=name, detail=detail, at=row.finished_at)


# ---------------------------------------------------------------------- webhooks
def _of_webhooks(connection: Connection, since: float, limit: int) -> Iterator[Incident]:
    found: dict[str, Incident] = {}
    columns = (runs.c.subject, runs.c.finished_at, runs.c.detail)
    query: AnySelect = select_failed("delivery", since).with_only_columns(*columns)
    for name, at, detail in connection.execute(query):
        known = found.get(
            name, Incident(kind=IncidentKind.DELIVERIES_DEAD, subject=name, name=name, detail="", at=0.0, count=0)
        )
        newest = replace(known, detail=detail, at=at) if at > known.at else known
        found[name] = replace(newest, count=known.count + 1)
    yield from sorted(found.values(), key=lambda incident: -incident.at)[:limit]
