"""Connections to PostgreSQL end: by the server's own command, or on their way."""

from __future__ import annotations

import time

from tests.chaos.databases import PostgresqlServer
from tests.chaos.scene import Scene

_ALL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"


def strike(scene: Scene) -> str:
    """Cut all, again and again within a second."""
    server = scene.database
    assert isinstance(server, PostgresqlServer)
    assert server.proxy is not None
    is_by_server, num_cuts = scene.chance.random() < 0.5, scene.chance.randint(1, 8)
    for _ in range(num_cuts):
        server.execute(_ALL) if is_by_server else server.proxy.cut()
        time.sleep(scene.chance.uniform(0.0, 0.2))
    return f"connections cut {num_cuts} times, " + ("by the server" if is_by_server else "on their way")
