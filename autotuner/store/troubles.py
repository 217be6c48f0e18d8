"""What went wrong and stands unmended, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Engine, select, type_coerce

from autotuner.core.announcement import Trouble, TroubleKind
from autotuner.core.run import RunState
from autotuner.core.upkeep import MfuGateOutcome, Verdict
from autotuner.store.engine import reading
from autotuner.store.statements import AnySelect
from autotuner.store.tables import runs, sweeps
from autotuner.store.tables.columns import KnownFields

_OUTCOMES = {
    MfuGateOutcome.FAILED.value: TroubleKind.GATE_FAILED,
    MfuGateOutcome.UNDECIDED.value: TroubleKind.GATE_UNDECIDED,
}
"""Of gates that measured; others could not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The field of a gate's result that says how it ended, read without the others."""

    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedRun:
    """The field of a gate's run that names the gate, whatever else stands in it."""

    gate: dict[str, Any] = field(default_factory=dict)


class SqlTroubles:
    """The TroubleStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, *, since: float, limit: int = 20) -> Sequence[Trouble]:
        with reading(self._engine) as connection:
            found = (
                *_of_retunes(connection, limit),
                *_of_gates(connection, since, limit),
                *_of_sweeps(connection, since, limit),
                *_of_clusters(connection, limit),
                *_of_webhooks(connection, since, limit),
            )
        kinds = list(TroubleKind)
        return sorted(found, key=lambda trouble: (kinds.index(trouble.kind), -trouble.at))


# ---------------------------------------------------------------------- retunes and clusters
def select_last(kind: str) -> AnySelect:
    """The last run of that kind of each subject that came to an end, where that was a failure."""
    others = runs.alias("others")
    ended = others.c.state.in_((RunState.COMPLETE, RunState.FAILED))
    mine = (others.c.kind == kind) & (others.c.subject == runs.c.subject) & ended
    last = (
        select(others.c.id)
        .where(mine)
        .order_by(others.c.created_at.desc(), others.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return (
        select(runs.c.subject, runs.c.finished_at, runs.c.detail, runs.c.result)
        .where(runs.c.kind == kind, runs.c.state == RunState.FAILED, runs.c.id == last)
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    )


def _of_retunes(connection: Connection, limit: int) -> Iterator[Trouble]:
    for row in connection.execute(select_last("retune").limit(limit)):
        verdict = "" if row.result is None else json.loads(row.result).get("verdict")
        is_slower = verdict == Verdict.REGRESSION.value
        kind = TroubleKind.REGRESSION if is_slower else TroubleKind.RETUNE_COULD_NOT_RUN
        yield Trouble(kind=kind, subject=row.subject, name=row.subject, detail=row.detail, at=row.finished_at)


def _of_clusters(connection: Connection, limit: int) -> Iterator[Trouble]:
    for name, at, detail, _ in connection.execute(select_last("check").limit(limit)):
        yield Trouble(kind=TroubleKind.CHECK_FAILED, subject=name, name=name, detail=detail, at=at)


# ---------------------------------------------------------------------- gates
def select_gates(since: float) -> AnySelect:
    """Gates that ended since then and let nothing pass."""
    result = type_coerce(runs.c.result, KnownFields(_Outcome)).label("result")
    asked = type_coerce(runs.c.request, KnownFields(_AskedRun)).label("asked")
    return (
        select(runs.c.id, runs.c.subject, runs.c.detail, runs.c.finished_at, result, asked)
        .where(runs.c.kind == "gate", runs.c.state == RunState.FAILED, runs.c.finished_at > since)
        .order_by(runs.c.created_at.desc(), runs.c.id.desc())
    )


def _of_gates(connection: Connection, since: float, limit: int) -> Iterator[Trouble]:
    for row in connection.execute(select_gates(since).limit(limit)):
        name = row.asked.gate.get("software") or f"gate of {row.subject}"
        outcome = "" if row.result is None else row.result.outcome
        kind = _OUTCOMES.get(outcome, TroubleKind.GATE_COULD_NOT_RUN)
        yield Trouble(kind=kind, subject=row.id, name=name, detail=row.detail, at=row.finished_at)


# ---------------------------------------------------------------------- sweeps
def select_sweeps(since: float) -> AnySelect:
    """Sweeps that failed since then for nobody but who asked, and whose job no later one measured."""
    later = sweeps.alias("later")
    measured = (later.c.job_key == sweeps.c.job_key) & (later.c.created_at > sweeps.c.created_at)
    mended = select(later.c.id).where(measured, later.c.state == RunState.COMPLETE).exists()
    columns = (sweeps.c.id, sweeps.c.name, sweeps.c.model_name, sweeps.c.cluster_name)
    return (
        select(*columns, runs.c.detail.label("stop_detail"), sweeps.c.finished_at)
        .join_from(sweeps, runs, runs.c.id == sweeps.c.id)
        .where(sweeps.c.state == RunState.FAILED, sweeps.c.finished_at > since, ~mended, runs.c.parent_id.is_(None))
        .order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc())
    )


def _of_sweeps(connection: Connection, since: float, limit: int) -> Iterator[Trouble]:
    for row in connection.execute(select_sweeps(since).limit(limit)):
        name = row.name or f"{row.model_name} on {row.cluster_name}"
        kind, detail = TroubleKind.SWEEP_FAILED, row.stop_detail
        yield Trouble(kind=kind, subject=row.id, name=name, detail=detail, at=row.finished_at)


# ---------------------------------------------------------------------- webhooks
def select_dead(since: float) -> AnySelect:
    """Deliveries that were given up since then."""
    is_dead = (runs.c.kind == "delivery") & (runs.c.state == RunState.FAILED)
    query = select(runs.c.subject, runs.c.finished_at, runs.c.detail).where(is_dead, runs.c.finished_at > since)
    return query.order_by(runs.c.created_at.desc(), runs.c.id.desc())


def _of_webhooks(connection: Connection, since: float, limit: int) -> Iterator[Trouble]:
    found: dict[str, Trouble] = {}
    for name, at, detail in connection.execute(select_dead(since)):
        known = found.get(
            name, Trouble(kind=TroubleKind.DELIVERIES_DEAD, subject=name, name=name, detail="", at=0.0, count=0)
        )
        newest = replace(known, detail=detail, at=at) if at > known.at else known
        found[name] = replace(newest, count=known.count + 1)
    yield from sorted(found.values(), key=lambda trouble: -trouble.at)[:limit]
