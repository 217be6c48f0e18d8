"""PostgreSQL is stopped, every process of it, and goes on: it neither answers nor refuses meanwhile."""

from __future__ import annotations

from tests.chaos.databases import PostgresqlServer
from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGSTOP to the server, then SIGCONT."""
    server = scene.database
    assert isinstance(server, PostgresqlServer)
    server.stop()
    seconds = scene.beyond_the_lease()
    server.go_on()
    return f"SIGSTOP to PostgreSQL for {seconds:.1f} s"
