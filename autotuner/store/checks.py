"""Checks of clusters: one at a time of each cluster, and gone with it."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, select

from autotuner.core.cluster_check import CheckFindings, CheckRequest, ClusterCheck
from autotuner.core.errors import Conflict
from autotuner.core.run import OPEN, NewRun
from autotuner.store.identity import new_check_id, no_such_name
from autotuner.store.runs import insert_run
from autotuner.store.tables import clusters, profiles, runs


def create_check(connection: Connection, name: str, request: CheckRequest, now: float, created_by: str) -> str:
    """Queue a check of the cluster, the only one of it that is not finished, and return its id.

    Raises:
        NotFound: No cluster of that name is stored.
        Conflict: Another check of it is not finished.
    """
    _lock_cluster(connection, name)
    _refuse_second(connection, name)
    cluster = connection.scalars(select(clusters.c.document).where(clusters.c.name == name)).one()
    new = NewRun(
        id=new_check_id(),
        kind="check",
        request=ClusterCheck(cluster=cluster, request=request),
        progress=CheckFindings(),
        subject=name,
        created_by=created_by,
    )
    insert_run(connection, new, now)
    return new.id


def remove_cluster(connection: Connection, name: str) -> None:
    """Remove the cluster, its checks, and the profile of the same name if it is this cluster's.

    Raises:
        NotFound: No cluster of that name is stored.
        Conflict: A check of it is not finished.
    """
    _lock_cluster(connection, name)
    _refuse_second(connection, name)
    profile = connection.scalar(select(profiles.c.document).where(profiles.c.name == name))
    if profile is not None and profile.cluster == name:
        connection.execute(delete(profiles).where(profiles.c.name == name))
    connection.execute(delete(runs).where(_of(name)))
    connection.execute(delete(clusters).where(clusters.c.name == name))


def _of(name: str) -> ColumnElement[bool]:
    return (runs.c.kind == "check") & (runs.c.subject == name)


def _lock_cluster(connection: Connection, name: str) -> None:
    """Let nobody else begin a check of the cluster until the transaction ends."""
    names = clusters.c.name
    if connection.scalar(select(names).where(names == name).with_for_update()) is None:
        raise no_such_name("cluster", name, connection.scalars(select(names)))


def _refuse_second(connection: Connection, name: str) -> None:
    running = connection.scalar(select(runs.c.id).where(_of(name), runs.c.state.in_(OPEN)).limit(1))
    if running is not None:
        raise Conflict(f"check {running} of the cluster {name} is not finished; wait for it, or cancel it")
