"""Connections to PostgreSQL that give up when the server does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import URL, Engine, create_engine, event
from sqlalchemy.engine import Dialect
from sqlalchemy.pool import ConnectionPoolEntry

from autotuner.store.engine import Reach

T = TypeVar("T")

_CONNECT_WAIT_S = 5
"""Maximum number of seconds to connect; without it, a connection through a firewall that drops packets would wait
forever."""

_LEAST_CONNECT_WAIT_S = 2
"""Shortest time in seconds that PostgreSQL's own client can wait for a connection."""

_NUM_CONNECTIONS = 20
"""Half of the threads that answer requests: requests that need no database are answered while others wait for a
connection."""

_POOL_WAIT_S = 5.0

_POLL_S = 0.1


class NoAnswer(psycopg.OperationalError):
    """Raised when the PostgreSQL server does not answer within the time that is allowed for every statement."""


def make_postgresql_engine(address: URL, answer_s: float | None) -> Engine:
    """Return the SQLAlchemy engine for a PostgreSQL database. It does not connect to the database yet.

    Args:
        address: URL of the database.
        answer_s: Seconds to wait for an answer; None: no limit. The server itself ends a statement, or a wait for a
            lock, somewhat earlier. So the client reaches this limit only if the server is frozen or cut off.
    """
    engine = create_engine(
        address.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=_NUM_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_POOL_WAIT_S,
        connect_args={**_network(), **_limits(answer_s), "connect_timeout": _connect_wait_s(answer_s)},
        execution_options={"reach": Reach(NoAnswer, psycopg.errors.ConnectionTimeout)},
    )
    event.listen(engine, "do_connect", _connecting(answer_s))
    return engine


def _network() -> dict[str, int]:
    """Return settings by which a waiting connection also notices within about 15 s that the other side is gone."""
    return {"keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000}


def _connect_wait_s(answer_s: float | None) -> int:
    return _CONNECT_WAIT_S if answer_s is None else max(_LEAST_CONNECT_WAIT_S, min(_CONNECT_WAIT_S, int(answer_s)))


def _limits(answer_s: float | None) -> dict[str, str]:
    """Return the server's timeouts.

    A client that stops inside a transaction loses it, so its locks block nobody for long.
    """
    if answer_s is None:
        return {}
    soon_ms = int(800 * answer_s)
    settings = {
        "statement_timeout": soon_ms,
        "lock_timeout": soon_ms,
        "idle_in_transaction_session_timeout": 2 * soon_ms,
    }
    return {"options": " ".join(f"-c {name}={value}" for name, value in settings.items())}


def _connecting(answer_s: float | None) -> Callable[[Dialect, ConnectionPoolEntry, Any, dict[str, Any]], Any]:
    class Connection(psycopg.Connection[Any]):
        """A connection that waits no longer than ``answer_s`` for an answer."""

        def wait(self, gen: PQGen[T], interval: float = _POLL_S, timeout: float | None = None) -> T:
            try:
                return super().wait(gen, interval, answer_s if timeout is None else timeout)
            except psycopg.errors._WaitTimeout as error:  # psycopg documents it, and exports no other name
                self.close()  # a late answer must not reach the next query
                raise NoAnswer(f"the server did not answer within {answer_s:g} s") from error

    def connect(_: Dialect, __: ConnectionPoolEntry, arguments: Any, options: dict[str, Any]) -> Any:
        return Connection.connect(*arguments, **options)

    return connect
