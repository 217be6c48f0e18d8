"""Stores models, clusters and profiles by name, and makes the ids of everything that is stored."""

from __future__ import annotations

import secrets

from sqlalchemy import ColumnElement, Connection, Select, delete, insert, select
from sqlalchemy.exc import IntegrityError

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import CheckFindings, CheckRequest, ClusterCheck
from autotuner.core.errors import Conflict, InvalidInput
from autotuner.core.listed import Stored
from autotuner.core.named import KINDS, Described
from autotuner.core.profile import DeviceProfile
from autotuner.core.run import OPEN, NewRun, Run
from autotuner.store.engine import one_row, reading, writing
from autotuner.store.runs import Part, insert_run
from autotuner.store.tables import descriptions, read_document, runs


class DescriptionStore(Part):
    """The store of models, clusters and device profiles that have a name, and of checks of clusters."""

    def save(self, value: Described, *, created_by: str = "") -> None:
        """Store a model, a cluster or a device profile under its name.

        If an equal model or cluster is stored already, it keeps its creator. If a different one is stored under the
        name, ``Conflict`` is raised. A profile replaces an older profile of the same name, since only the latest
        measurement of a machine counts.
        """
        kind = KINDS[type(value)]
        check_name(f"{kind}.name", value.name)
        row = {"kind": kind, "name": value.name, "document": codec.dumps(value), "created_by": created_by}
        try:
            with writing(self._engine) as connection:
                if isinstance(value, DeviceProfile):
                    connection.execute(delete(descriptions).where(_is(DeviceProfile, value.name)))
                connection.execute(insert(descriptions).values(row))
        except IntegrityError:
            if self.get(type(value), value.name) != value:
                raise name_taken(kind, value.name) from None

    def get(self, cls: type[Described], name: str) -> Described:
        """Return the stored model, cluster or profile with that name; ``cls`` selects the type.

        If there is none, ``NotFound`` suggests a similar name.
        """
        query = select(descriptions.c.document).where(_is(cls, name))
        with reading(self._engine) as connection:
            return read_document(cls, one_row(connection, query, KINDS[cls], name, _names(cls)).document)

    def stored(self, cls: type[Described]) -> Stored[Described]:
        """Return all stored values of one type, ordered by name, each with the name of its creator.

        The type is models, clusters or profiles. The creator is the caller who stored the value. The creator's name is
        empty if that caller was anonymous.
        """
        query = select(descriptions.c.document, descriptions.c.created_by).where(descriptions.c.kind == KINDS[cls])
        with reading(self._engine) as connection:
            found = [(read_document(cls, text), maker) for text, maker in connection.execute(query)]
        found.sort(key=lambda pair: pair[0].name)  # not in SQL: PostgreSQL sorts text as its locale says
        return Stored.by({value.name: maker for value, maker in found}, [value for value, _ in found])

    def names(self, cls: type[Described]) -> tuple[str, ...]:
        """Return the sorted names of all stored models, clusters or profiles; ``cls`` selects the type."""
        with reading(self._engine) as connection:
            return tuple(sorted(connection.scalars(_names(cls))))

    def owner(self, cls: type[Described], name: str) -> str:
        """Return the name of the caller who stored the model, cluster or profile ``name``; ``cls`` selects the type.

        The result is empty if the caller was anonymous, or if nothing is stored under the name.
        """
        with reading(self._engine) as connection:
            return connection.scalar(select(descriptions.c.created_by).where(_is(cls, name))) or ""

    def remove(self, cls: type[Described], name: str) -> None:
        """Delete the stored model, cluster or profile ``name``; ``cls`` selects the type.

        Sweeps are not affected, because each sweep stores its own copy. With a cluster, its checks and its measured
        profile are deleted, too. If a check of the cluster is not finished, ``Conflict`` is raised.
        """
        with writing(self._engine) as connection:
            _locked(connection, cls, name)
            if cls is Cluster:
                _require_unchecked(connection, name)
                profile = connection.scalar(select(descriptions.c.document).where(_is(DeviceProfile, name)))
                if profile is not None and read_document(DeviceProfile, profile).cluster == name:
                    connection.execute(delete(descriptions).where(_is(DeviceProfile, name)))
                connection.execute(delete(runs).where(_checks(name)))
            connection.execute(delete(descriptions).where(_is(cls, name)))

    def create_check(self, name: str, request: CheckRequest, *, now: float, created_by: str = "") -> Run:
        """Queue a check of the stored cluster ``name``.

        Raise ``Conflict`` while an earlier check of this cluster is not finished.
        """
        with writing(self._engine) as connection:
            cluster = read_document(Cluster, _locked(connection, Cluster, name))
            _require_unchecked(connection, name)
            new = NewRun(
                id=new_id("ck"),
                kind="check",
                request=ClusterCheck(cluster=cluster, request=request),
                progress=CheckFindings(),
                subject=name,
                created_by=created_by,
            )
            insert_run(connection, new, now)
        return self._runs.get("check", new.id)


# ---------------------------------------------------------------------- on a connection
def _is(cls: type[Described], name: str) -> ColumnElement[bool]:
    return (descriptions.c.kind == KINDS[cls]) & (descriptions.c.name == name)


def _locked(connection: Connection, cls: type[Described], name: str) -> str:
    """Return the document with this name, and lock it against changes until the transaction ends.

    Raises:
        NotFound: No document has this name.
    """
    mine = select(descriptions.c.document).where(_is(cls, name)).with_for_update()
    document: str = one_row(connection, mine, KINDS[cls], name, _names(cls)).document
    return document


def _names(cls: type[Described]) -> Select[str]:
    return select(descriptions.c.name).where(descriptions.c.kind == KINDS[cls])


def _checks(name: str) -> ColumnElement[bool]:
    return (runs.c.kind == "check") & (runs.c.subject == name)


def _require_unchecked(connection: Connection, name: str) -> None:
    """Raise an error if a check of the locked cluster is unfinished."""
    running = connection.scalar(select(runs.c.id).where(_checks(name), runs.c.state.in_(OPEN)).limit(1))
    if running is not None:
        raise Conflict(f"check {running} of the cluster {name} is not finished; wait for it, or cancel it")


# ---------------------------------------------------------------------- ids and names
_BASE32 = "abcdefghijklmnopqrstuvwxyz234567"  # RFC 4648, lower case: safe in paths, file names and job names


def new_id(prefix: str) -> str:
    """Return a new random id: the prefix, a hyphen and ten base-32 characters.

    The characters hold 50 random bits. Among a million ids, the probability of two equal ids is 1 in 2000.
    """
    return f"{prefix}-" + "".join(secrets.choice(_BASE32) for _ in range(10))


def check_name(field: str, name: str) -> None:
    """Raise an error unless every database can store ``name`` and a person can type it.

    Raises:
        InvalidInput: The name is empty or has a character that cannot be printed. (PostgreSQL, for example, cannot
            store a NUL in a text.)
    """
    if not name or not name.isprintable():
        raise InvalidInput(field, name, "must be printable text of at least one character")


def name_taken(kind: str, name: str) -> Conflict:
    """Return the ``Conflict`` error for a name under which a different value of this kind is already stored."""
    return Conflict(f"another {kind} is already stored as {name!r}; choose another name")
