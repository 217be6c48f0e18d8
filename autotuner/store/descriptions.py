"""Models, clusters and profiles by name, and what all that is stored has: ids, and names that people type."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest, ClusterCheck
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import OPEN, NewRun, Run
from autotuner.store.engine import reading, writing
from autotuner.store.runs import RunStore, insert_run
from autotuner.store.tables import descriptions, read_document, runs

Described = TypeVar("Described", TransformerSpec, Cluster, DeviceProfile)

_KINDS: Mapping[type, str] = {TransformerSpec: "model", Cluster: "cluster", DeviceProfile: "profile"}


class Names(Protocol):
    """What is stored under names; all that a prediction asks for. What is not stored raises ``NotFound``."""

    def get_model(self, name: str) -> TransformerSpec:
        """Return the model saved under that name."""
        ...

    def get_cluster(self, name: str) -> Cluster:
        """Return the cluster saved under that name."""
        ...

    def get_profile(self, name: str) -> DeviceProfile:
        """Return the profile saved last under that name."""
        ...


class DescriptionStore:
    """Models, clusters and profiles by name, and checks of clusters; every method is one transaction."""

    def __init__(self, engine: Engine, run_store: RunStore) -> None:
        self._engine = engine
        self.runs = run_store

    def save_model(self, model: TransformerSpec, *, created_by: str = "") -> None:
        """Store under its name; an equal one stored before stays its maker's, a different one raises ``Conflict``."""
        self._add(model, created_by)

    def get_model(self, name: str) -> TransformerSpec:
        """Return the model saved under that name; ``NotFound`` names the nearest."""
        return self._get(TransformerSpec, name)

    def list_models(self) -> Sequence[TransformerSpec]:
        """Return all models by name."""
        return self._list(TransformerSpec)

    def model_owners(self) -> Mapping[str, str]:
        """Return who stored each model, by the model's name; empty text where nobody was asked."""
        return self._owners(TransformerSpec)

    def remove_model(self, name: str) -> None:
        """Forget a model; sweeps keep what they were given."""
        with writing(self._engine) as connection:
            if not connection.execute(delete(descriptions).where(_is(TransformerSpec, name))).rowcount:
                raise _missing(connection, TransformerSpec, name)

    def save_cluster(self, cluster: Cluster, *, created_by: str = "") -> None:
        """Store under its name, as ``save_model`` does."""
        self._add(cluster, created_by)

    def get_cluster(self, name: str) -> Cluster:
        """Return the cluster saved under that name; ``NotFound`` names the nearest."""
        return self._get(Cluster, name)

    def list_clusters(self) -> Sequence[Cluster]:
        """Return all clusters by name."""
        return self._list(Cluster)

    def cluster_owners(self) -> Mapping[str, str]:
        """Return who stored each cluster, by the cluster's name."""
        return self._owners(Cluster)

    def remove_cluster(self, name: str) -> None:
        """Forget it with its checks and with the profile that one of them took; sweeps keep what they were given.

        A check that is not finished raises ``Conflict``.
        """
        with writing(self._engine) as connection:
            _lock_unchecked(connection, name)
            profile = _find(connection, DeviceProfile, name)
            if profile is not None and profile.cluster == name:
                connection.execute(delete(descriptions).where(_is(DeviceProfile, name)))
            connection.execute(delete(runs).where(_checks(name)))
            connection.execute(delete(descriptions).where(_is(Cluster, name)))

    def save_profile(self, profile: DeviceProfile) -> None:
        """Store under its name, in the place of an older one of that name: a machine is what it was last measured."""
        check_name("profile.name", profile.name)
        with writing(self._engine) as connection:
            connection.execute(delete(descriptions).where(_is(DeviceProfile, profile.name)))
            _insert(connection, profile, "")

    def get_profile(self, name: str) -> DeviceProfile:
        """Return the profile saved last under that name; ``NotFound`` names the nearest."""
        return self._get(DeviceProfile, name)

    def list_profiles(self) -> Sequence[DeviceProfile]:
        """Return all profiles by name."""
        return self._list(DeviceProfile)

    def create_check(self, name: str, request: CheckRequest, *, now: float, created_by: str = "") -> Run:
        """Queue a check of the stored cluster of that name; while another of it is not finished, ``Conflict``."""
        with writing(self._engine) as connection:
            _lock_unchecked(connection, name)
            cluster = _find(connection, Cluster, name)
            assert cluster is not None, "it is locked"
            new = NewRun(
                id=new_id("ck"),
                kind="check",
                request=ClusterCheck(cluster=cluster, request=request),
                progress=CheckFindings(),
                subject=name,
                created_by=created_by,
            )
            insert_run(connection, new, now)
        return self.runs.get("check", new.id)

    # ------------------------------------------------------------------ of any kind
    def _add(self, value: Described, created_by: str) -> None:
        kind = _KINDS[type(value)]
        check_name(f"{kind}.name", value.name)
        try:
            with writing(self._engine) as connection:
                _insert(connection, value, created_by)
        except IntegrityError:
            if self._get(type(value), value.name) != value:
                raise name_taken(kind, value.name) from None

    def _get(self, cls: type[Described], name: str) -> Described:
        with reading(self._engine) as connection:
            value = _find(connection, cls, name)
            if value is None:
                raise _missing(connection, cls, name)
            return value

    def _list(self, cls: type[Described]) -> Sequence[Described]:
        with reading(self._engine) as connection:
            texts = connection.scalars(select(descriptions.c.document).where(descriptions.c.kind == _KINDS[cls]))
            found = [read_document(cls, text) for text in texts]
        return sorted(found, key=lambda value: value.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def _owners(self, cls: type[Described]) -> Mapping[str, str]:
        owners = select(descriptions.c.name, descriptions.c.created_by).where(descriptions.c.kind == _KINDS[cls])
        with reading(self._engine) as connection:
            return dict(connection.execute(owners).all())


# ---------------------------------------------------------------------- on a connection
def _is(cls: type[Described], name: str) -> ColumnElement[bool]:
    return (descriptions.c.kind == _KINDS[cls]) & (descriptions.c.name == name)


def _find(connection: Connection, cls: type[Described], name: str) -> Described | None:
    text = connection.scalar(select(descriptions.c.document).where(_is(cls, name)))
    return None if text is None else read_document(cls, text)


def _insert(connection: Connection, value: TransformerSpec | Cluster | DeviceProfile, created_by: str) -> None:
    row = {"kind": _KINDS[type(value)], "name": value.name, "document": codec.dumps(value), "created_by": created_by}
    connection.execute(insert(descriptions).values(row))


def _missing(connection: Connection, cls: type[Described], name: str) -> NotFound:
    names = select(descriptions.c.name).where(descriptions.c.kind == _KINDS[cls])
    return no_such_name(_KINDS[cls], name, connection.scalars(names))


def _checks(name: str) -> ColumnElement[bool]:
    return (runs.c.kind == "check") & (runs.c.subject == name)


def _lock_unchecked(connection: Connection, name: str) -> None:
    """Let nobody else begin a check of the cluster until the transaction ends.

    Raises:
        NotFound: No cluster of that name is stored.
        Conflict: A check of it is not finished.
    """
    if connection.scalar(select(descriptions.c.name).where(_is(Cluster, name)).with_for_update()) is None:
        raise _missing(connection, Cluster, name)
    running = connection.scalar(select(runs.c.id).where(_checks(name), runs.c.state.in_(OPEN)).limit(1))
    if running is not None:
        raise Conflict(f"check {running} of the cluster {name} is not finished; wait for it, or cancel it")


# ---------------------------------------------------------------------- ids and names
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"  # RFC 4648, lower case: safe in paths, file names and job names


def new_id(prefix: str) -> str:
    """Return the prefix and ten random base-32 characters: 50 bits, so a million clash with odds of 1 in 2000."""
    return f"{prefix}-" + "".join(secrets.choice(_BASE32) for _ in range(10))


def check_name(field: str, name: str) -> None:
    """Return if ``name`` can be stored by every database and typed by a person.

    Raises:
        InvalidInput: It is empty or holds a character that does not print; PostgreSQL has no NUL in a text.
    """
    if not name or not name.isprintable():
        raise InvalidInput(field, name, "must be printable text of at least one character")


def no_such_name(kind: str, name: str, known: Iterable[str]) -> NotFound:
    """Return the error for a name that is not stored, with the closest of those that are."""
    near = get_close_matches(name, list(known), 1)
    return NotFound(kind, name, near[0] if near else None)


def name_taken(kind: str, name: str) -> Conflict:
    """Return the error for saving something else under a stored name."""
    return Conflict(f"a different {kind} is stored as {name!r}; save this one under a name of its own")
