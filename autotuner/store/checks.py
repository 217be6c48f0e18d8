"""Checks of clusters, read and written on a connection; the transaction around them is the caller's."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from autotuner.core.cluster_check import CheckRequest, CheckState, ClusterCheck
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound
from autotuner.core.run import HeldLease
from autotuner.store import leases
from autotuner.store.identity import new_check_id, no_such_name
from autotuner.store.statements import AnyRow, AnySelect
from autotuner.store.tables import checks, clusters, profiles

_CHECKS: AnySelect = select(*(checks.c[field.name] for field in fields(ClusterCheck))).select_from(checks)

_UNFINISHED = checks.c.state.in_((CheckState.QUEUED, CheckState.RUNNING))


def create(connection: Connection, name: str, request: CheckRequest, now: float, created_by: str) -> ClusterCheck:
    """A queued check of the cluster, the only one of it that is not finished."""
    lock_cluster(connection, name)
    _refuse_second(connection, name)
    cluster = connection.scalars(select(clusters.c.document).where(clusters.c.name == name)).one()
    check = ClusterCheck(
        id=new_check_id(),
        cluster=cluster,
        request=request,
        state=CheckState.QUEUED,
        created_at=now,
        created_by=created_by,
    )
    connection.execute(insert(checks).values(cluster_name=name, **_values(check)))
    return check


def lock_cluster(connection: Connection, name: str) -> None:
    """The cluster is stored, and nobody else begins a check of it until the transaction ends."""
    names = clusters.c.name
    if connection.scalar(select(names).where(names == name).with_for_update()) is None:
        raise no_such_name("cluster", name, connection.scalars(select(names)))


def _refuse_second(connection: Connection, name: str) -> None:
    running = connection.scalar(select(checks.c.id).where(checks.c.cluster_name == name, _UNFINISHED).limit(1))
    if running is not None:
        raise Conflict(f"check {running} of the cluster {name} is not finished; wait for it, or cancel it")


def remove_cluster(connection: Connection, name: str) -> None:
    """The cluster, its checks, and the profile of the same name if it is this cluster's."""
    lock_cluster(connection, name)
    _refuse_second(connection, name)
    profile = connection.scalar(select(profiles.c.document).where(profiles.c.name == name))
    if profile is not None and profile.cluster == name:
        connection.execute(delete(profiles).where(profiles.c.name == name))
    connection.execute(delete(checks).where(checks.c.cluster_name == name))
    connection.execute(delete(clusters).where(clusters.c.name == name))


def get(connection: Connection, check_id: str) -> ClusterCheck:
    """As it stands now; ``NotFound`` without it."""
    return _one(connection, _CHECKS, check_id)


def lock(connection: Connection, check_id: str) -> ClusterCheck:
    """The check, which nobody else changes until the transaction ends."""
    return _one(connection, _CHECKS.with_for_update(), check_id)


def hold(connection: Connection, check_id: str, owner: str) -> ClusterCheck:
    """The check, locked, if ``owner`` holds the lease; ``LeaseLost`` otherwise."""
    check = lock(connection, check_id)
    if check.owner != owner:
        raise LeaseLost(check_id, owner)
    return check


def newest_first(name: str) -> AnySelect:
    """Rows as ``ClusterCheck`` takes them."""
    return _CHECKS.where(checks.c.cluster_name == name).order_by(checks.c.created_at.desc(), checks.c.id.desc())


def read(row: AnyRow) -> ClusterCheck:
    """The check in a row."""
    return ClusterCheck(**row._mapping)


def claim(
    connection: Connection, *, owner: str, now: float, lease_s: float, lapsed: Collection[HeldLease]
) -> ClusterCheck | None:
    """The oldest that nobody works on; one that another worker is claiming is passed over."""
    is_free = or_(checks.c.state == CheckState.QUEUED, leases.CHECKS.is_left(lapsed))
    free = select(checks.c.id).where(is_free)
    check_id = connection.scalar(
        free.order_by(checks.c.created_at, checks.c.id).limit(1).with_for_update(skip_locked=True)
    )
    if check_id is None:
        return None
    check = get(connection, check_id)
    started_at = now if check.started_at is None else check.started_at
    claimed = replace(check, state=CheckState.RUNNING, owner=owner, started_at=started_at)
    return save(connection, renew(claimed, now=now, lease_s=lease_s))


def renew(check: ClusterCheck, *, now: float, lease_s: float) -> ClusterCheck:
    """A sign of life, after which the owner may be silent for ``lease_s``."""
    return replace(check, renewals=check.renewals + 1, lease_until=now + lease_s, lease_s=lease_s)


def cancel(check: ClusterCheck, *, now: float) -> ClusterCheck:
    """Ended if no worker has begun with it, else marked: its jobs have to be ended first. Unchanged if finished."""
    if check.state.finished:
        return check
    if check.state is not CheckState.QUEUED:
        return replace(check, cancel_requested=True)
    asked = replace(check, cancel_requested=True, findings=check.findings.said("cancelled before it began", now))
    return end(asked, CheckState.CANCELLED, now=now)


def end(check: ClusterCheck, state: CheckState, *, now: float) -> ClusterCheck:
    """Finished, held by nobody.

    Raises:
        InvalidInput: ``state`` is no end.
    """
    if not state.finished:
        raise InvalidInput("state", state.value, "must be an end: complete, failed or cancelled", "complete")
    return replace(check, state=state, finished_at=now, owner=None, lease_until=None)


def save(connection: Connection, check: ClusterCheck) -> ClusterCheck:
    """Store what changed."""
    changed = {name: value for name, value in _values(check).items() if name not in ("id", "cluster", "request")}
    connection.execute(update(checks).where(checks.c.id == check.id).values(changed))
    return check


def _values(check: ClusterCheck) -> dict[str, Any]:
    return {field.name: getattr(check, field.name) for field in fields(check)}


def _one(connection: Connection, query: AnySelect, check_id: str) -> ClusterCheck:
    row = connection.execute(query.where(checks.c.id == check_id)).one_or_none()
    if row is None:
        raise NotFound("check", check_id)
    return read(row)
