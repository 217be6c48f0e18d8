"""Models, clusters and profiles that are stored under names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from sqlalchemy import Column, Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from autotuner.core.cluster import Cluster
from autotuner.core.model import TransformerSpec
from autotuner.core.profile import DeviceProfile
from autotuner.store.engine import reading, writing
from autotuner.store.identity import check_name, name_taken, no_such_name

Named = TypeVar("Named", TransformerSpec, Cluster, DeviceProfile)


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


class Shelf(Generic[Named]):
    """Values of one kind by name, each call a transaction."""

    def __init__(self, engine: Engine, column: Column[Named], kind: str) -> None:
        self._engine = engine
        self._column: Column[Named] = column
        self._table = column.table
        self._kind = kind

    def add(self, value: Named, created_by: str) -> None:
        """Store it; an equal one that is stored stays whose it is, a different one raises ``Conflict``."""
        check_name(f"{self._kind}.name", value.name)
        try:
            with writing(self._engine) as connection:
                row = {"name": value.name, "document": value, "created_by": created_by}
                connection.execute(insert(self._table).values(row))
        except IntegrityError:
            if self.get(value.name) != value:
                raise name_taken(self._kind, value.name) from None

    def put(self, value: Named) -> None:
        """Store it in the place of an older one of its name."""
        check_name(f"{self._kind}.name", value.name)
        with writing(self._engine) as connection:
            connection.execute(delete(self._table).where(self._table.c.name == value.name))
            connection.execute(insert(self._table).values(name=value.name, document=value))

    def get(self, name: str) -> Named:
        """The one of that name; ``NotFound`` names the nearest."""
        names = self._table.c.name
        with reading(self._engine) as connection:
            value: Named | None = connection.scalar(select(self._column).where(names == name))
            if value is None:
                raise no_such_name(self._kind, name, connection.scalars(select(names)))
            return value

    def list(self) -> Sequence[Named]:
        """All of them by name."""
        with reading(self._engine) as connection:
            values = connection.scalars(select(self._column)).all()
        return sorted(values, key=lambda value: value.name)  # not in SQL: PostgreSQL sorts text as its locale says

    def owners(self) -> Mapping[str, str]:
        """Who stored each, by name; from two columns alone."""
        with reading(self._engine) as connection:
            return dict(connection.execute(select(self._table.c.name, self._table.c.created_by)).all())

    def remove(self, name: str) -> None:
        """Forget it; ``NotFound`` names the nearest."""
        names = self._table.c.name
        with writing(self._engine) as connection:
            if not connection.execute(delete(self._table).where(names == name)).rowcount:
                raise no_such_name(self._kind, name, connection.scalars(select(names)))
