"""Leases in SQL: which are held, and which rows nobody holds any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from autotuner.core.run import HeldLease, SweepState
from autotuner.store.tables import sweeps


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseColumns:
    """Where a table keeps what a ``HeldLease`` says.

    Attributes:
        is_begun: Whether a row is worked on, by its owner or, without one, by whoever comes next.
    """

    is_begun: ColumnElement[bool]
    id: ColumnElement[str]
    owner: ColumnElement[str | None]
    renewals: ColumnElement[int]
    lease_until: ColumnElement[float | None]
    lease_s: ColumnElement[float | None]

    def held(self, connection: Connection) -> Sequence[HeldLease]:
        """Every lease that somebody holds."""
        columns = (getattr(self, field.name).label(field.name) for field in fields(HeldLease))
        rows = connection.execute(select(*columns).where(self.is_begun, self.owner.is_not(None)))
        return [HeldLease(**row._mapping) for row in rows]

    def is_left(self, lapsed: Collection[HeldLease]) -> ColumnElement[bool]:
        """Whether a row was begun, and given back or held by a lease that lapsed and is as it was seen."""
        return self.is_begun & or_(self.owner.is_(None), *(self._is_still(lease) for lease in lapsed))

    def _is_still(self, lease: HeldLease) -> ColumnElement[bool]:
        return and_(
            self.id == lease.id,
            self.owner == lease.owner,
            self.renewals == lease.renewals,
            self.lease_until == lease.lease_until,
        )


SWEEPS = LeaseColumns(
    is_begun=sweeps.c.state == SweepState.RUNNING,
    id=sweeps.c.id,
    owner=sweeps.c.owner,
    renewals=sweeps.c.renewals,
    lease_until=sweeps.c.lease_until,
    lease_s=sweeps.c.lease_s,
)
