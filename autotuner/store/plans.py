"""Plans on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Engine, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from autotuner.core.errors import LeaseLost, NotFound
from autotuner.core.run import HeldLease, StoredPlan
from autotuner.store import leases
from autotuner.store.engine import reading, writing
from autotuner.store.statements import AnySelect
from autotuner.store.tables import plans

_PLANS: AnySelect = select(*(plans.c[field.name] for field in fields(StoredPlan))).select_from(plans)


class SqlPlans:
    """The PlanStore port: each write is one statement, which says itself whom the plan must belong to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, plan_id: str, question: str, *, now: float) -> None:
        with writing(self._engine) as connection:
            insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            new = insert(plans).values(
                id=plan_id, question=question, created_at=now, num_done=0, num_known=0, renewals=0
            )
            connection.execute(new.on_conflict_do_nothing(index_elements=["id"]))

    def get(self, plan_id: str) -> StoredPlan:
        with reading(self._engine) as connection:
            return _one(connection, plan_id)

    def held(self) -> Sequence[HeldLease]:
        with reading(self._engine) as connection:
            return leases.PLANS.held(connection)

    def claim(
        self, plan_id: str, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease] = ()
    ) -> StoredPlan:
        is_free = or_(leases.PLANS.is_left(lapsed), leases.PLANS.is_begun & (plans.c.owner == owner))
        taken = {"owner": owner, "num_done": 0, "num_known": 0, **_renewed(now, lease_s)}
        with writing(self._engine) as connection:
            connection.execute(update(plans).where(plans.c.id == plan_id, is_free).values(taken))
            return _one(connection, plan_id)

    def tell(self, plan_id: str, num_done: int, num_known: int, *, owner: str, now: float, lease_s: float) -> None:
        self._write(plan_id, owner, num_done=num_done, num_known=num_known, **_renewed(now, lease_s))

    def answer(self, plan_id: str, answer: str, *, owner: str, now: float) -> None:
        self._write(plan_id, owner, answer=answer, computed_at=now, owner=None, lease_until=None)

    def release(self, plan_id: str, *, owner: str, now: float) -> None:
        self._write(plan_id, owner, owner=None, lease_until=now)

    def _write(self, plan_id: str, holder: str, /, **changed: Any) -> None:
        mine = update(plans).where(plans.c.id == plan_id, leases.PLANS.is_begun, plans.c.owner == holder)
        with writing(self._engine) as connection:
            if connection.execute(mine.values(changed)).rowcount == 0:
                raise LeaseLost(plan_id, holder)


def _renewed(now: float, lease_s: float) -> dict[str, Any]:
    return {"renewals": plans.c.renewals + 1, "lease_until": now + lease_s, "lease_s": lease_s}


def _one(connection: Connection, plan_id: str) -> StoredPlan:
    row = connection.execute(_PLANS.where(plans.c.id == plan_id)).one_or_none()
    if row is None:
        raise NotFound("plan", plan_id)
    return StoredPlan(**row._mapping)
