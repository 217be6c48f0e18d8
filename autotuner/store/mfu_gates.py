"""MFU gates and baselines on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from autotuner.core.access import NOBODY_ASKED, Caller
from autotuner.core.announcement import Announcement
from autotuner.core.errors import NotFound, NotYours
from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.upkeep import Baseline, MfuGate, MfuGateOutcome, MfuGateRequest, MfuGateResult
from autotuner.ports import Page
from autotuner.store import announcements, queueing, records
from autotuner.store.engine import reading, writing
from autotuner.store.identity import check_name, new_mfu_gate_id
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import baselines, mfu_gates, sweeps

_GATES: AnySelect = select(*(mfu_gates.c[field.name] for field in fields(MfuGate))).select_from(mfu_gates)

_DECIDED = (MfuGateOutcome.PASSED, MfuGateOutcome.FAILED, MfuGateOutcome.NO_BASELINE)
"""Outcomes of gates that measured as much as they needed."""


class SqlMfuGates:
    """The MfuGateStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self,
        request: MfuGateRequest,
        *,
        key: str,
        content: str,
        baseline: Baseline | None,
        sweep: SweepRequest | None,
        now: float,
        caller: Caller = NOBODY_ASKED,
    ) -> MfuGate:
        check_name("gate.baseline", request.baseline)
        with writing(self._engine) as connection:
            gate = MfuGate(
                id=new_mfu_gate_id(),
                request=request,
                key=key,
                content=content,
                baseline=baseline,
                created_at=now,
                sweep_id=queueing.queue_sweep(connection, sweep, now, caller=caller).id if sweep else None,
                created_by=caller.name,
            )
            values = {field.name: getattr(gate, field.name) for field in fields(MfuGate)}
            connection.execute(insert(mfu_gates).values(baseline_name=request.baseline, is_reusable=False, **values))
            return gate

    def get(self, gate_id: str) -> MfuGate:
        with reading(self._engine) as connection:
            return _get(connection, gate_id)

    def list(self, *, baseline: str | None = None, page: Page = Page()) -> tuple[Sequence[MfuGate], int]:
        with reading(self._engine) as connection:
            rows, total = records.window(connection, newest_first(baseline), page)
        return [_read(row) for row in rows], total

    def find_reusable(self, content: str) -> MfuGate | None:
        with reading(self._engine) as connection:
            row = connection.execute(select_reusable(content).limit(1)).one_or_none()
        return None if row is None else _read(row)

    def concludable(self) -> Sequence[tuple[MfuGate, Sweep | None]]:
        over = or_(mfu_gates.c.sweep_id.is_(None), sweeps.c.finished_at.is_not(None))
        query = _GATES.outerjoin(sweeps, sweeps.c.id == mfu_gates.c.sweep_id)
        unfinished = query.where(mfu_gates.c.finished_at.is_(None), over)
        with reading(self._engine) as connection:
            rows = connection.execute(unfinished.order_by(mfu_gates.c.created_at, mfu_gates.c.id)).all()
            return [*records.with_sweeps(connection, [_read(row) for row in rows])]

    def conclude(
        self,
        gate_id: str,
        result: MfuGateResult,
        *,
        now: float,
        baseline: Baseline | None = None,
        announcement: Announcement | None = None,
    ) -> MfuGate | None:
        with writing(self._engine) as connection:
            gate = _get(connection, gate_id)
            ended = {
                "result": result,
                "outcome": result.outcome,
                "finished_at": now,
                "is_reusable": _is_reusable(gate, result),
            }
            mine = (mfu_gates.c.id == gate_id) & mfu_gates.c.finished_at.is_(None)
            if not connection.execute(update(mfu_gates).where(mine).values(ended)).rowcount:
                return None
            if baseline is not None:
                _require_replaceable(connection, baseline, gate)
                _set_baseline(connection, baseline)
            if announcement is not None:
                announcements.tell(connection, announcement)
            return _get(connection, gate_id)

    # ------------------------------------------------------------------ baselines
    def get_baseline(self, name: str, key: str) -> Baseline | None:
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with reading(self._engine) as connection:
            return connection.scalar(select(baselines.c.document).where(mine))

    def list_baselines(self) -> Sequence[Baseline]:
        with reading(self._engine) as connection:
            found = connection.scalars(select(baselines.c.document)).all()
        return sorted(found, key=lambda baseline: (baseline.name, -baseline.at, baseline.key))

    def remove_baseline(self, name: str, key: str) -> None:
        mine = (baselines.c.name == name) & (baselines.c.key == key)
        with writing(self._engine) as connection:
            if not connection.execute(delete(baselines).where(mine)).rowcount:
                raise NotFound("baseline", f"{name} of the job {key}")


# ---------------------------------------------------------------------- on a connection
def newest_first(baseline: str | None) -> AnySelect:
    """Gates in the order of a list, those held to one baseline or all."""
    chosen = _GATES if baseline is None else _GATES.where(mfu_gates.c.baseline_name == baseline)
    return chosen.order_by(mfu_gates.c.created_at.desc(), mfu_gates.c.id.desc())


def select_reusable(content: str) -> AnySelect:
    """Gates of that content whose runs may be taken again, newest first."""
    mine = (mfu_gates.c.content == content) & mfu_gates.c.is_reusable
    return _GATES.where(mine).order_by(mfu_gates.c.created_at.desc(), mfu_gates.c.id.desc())


def _is_reusable(gate: MfuGate, result: MfuGateResult) -> bool:
    measured = result.findings is not None and result.findings.runs is not None
    return gate.sweep_id is not None and measured and result.outcome in _DECIDED


def _get(connection: Connection, gate_id: str) -> MfuGate:
    row = connection.execute(_GATES.where(mfu_gates.c.id == gate_id)).one_or_none()
    if row is None:
        raise NotFound("gate", gate_id)
    return _read(row)


def _read(row: AnyRow) -> MfuGate:
    return MfuGate(**row._mapping)


def _require_replaceable(connection: Connection, baseline: Baseline, gate: MfuGate) -> None:
    """Return if the stored baseline is the one that the gate was held to, or was set by the same caller."""
    mine = (baselines.c.name == baseline.name) & (baselines.c.key == baseline.key)
    stored = connection.scalar(select(baselines.c.document).where(mine).with_for_update())
    if stored is None or (gate.baseline is not None and stored.gate_id == gate.baseline.gate_id):
        return
    owner = connection.scalar(select(mfu_gates.c.created_by).where(mfu_gates.c.id == stored.gate_id))
    if owner is not None and owner != gate.created_by:
        raise NotYours("baseline", baseline.name, owner)


def _set_baseline(connection: Connection, baseline: Baseline) -> None:
    """In the place of the one of that name and key; of two that come at once the later stays."""
    upsert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    values: dict[str, Any] = {"at": baseline.at, "document": baseline}
    new = upsert(baselines).values(name=baseline.name, key=baseline.key, **values)
    connection.execute(new.on_conflict_do_update(index_elements=["name", "key"], set_=values))
