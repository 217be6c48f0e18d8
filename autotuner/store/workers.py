"""Workers as they told of themselves, on SQLite and PostgreSQL."""

# ruff: noqa: D102  # the port documents every method

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import Engine, delete, insert, select

from autotuner.core.run import KnownWorker
from autotuner.store.engine import reading, writing
from autotuner.store.tables import workers

_KEPT_S = 86_400.0

_WORKERS = select(*(workers.c[field.name] for field in fields(KnownWorker)))


class SqlWorkers:
    """The WorkerStore port."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tell(self, worker: KnownWorker) -> None:
        replaced = (workers.c.name == worker.name) | (workers.c.seen_at < worker.seen_at - _KEPT_S)
        with writing(self._engine) as connection:
            connection.execute(delete(workers).where(replaced))
            connection.execute(insert(workers).values(asdict(worker)))

    def forget(self, name: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(delete(workers).where(workers.c.name == name))

    def list(self) -> Sequence[KnownWorker]:
        newest_first = _WORKERS.order_by(workers.c.seen_at.desc(), workers.c.name)
        with reading(self._engine) as connection:
            return [KnownWorker(**row._mapping) for row in connection.execute(newest_first)]
