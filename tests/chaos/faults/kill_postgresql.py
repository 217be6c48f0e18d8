"""PostgreSQL is killed, every process of it, and started again."""

from __future__ import annotations

from tests.chaos.databases import PostgresqlServer
from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to the server."""
    server = scene.database
    assert isinstance(server, PostgresqlServer)
    server.kill()
    seconds = scene.beyond_the_lease() if scene.chance.random() < 0.5 else scene.a_moment()
    return f"SIGKILL to PostgreSQL, away for {seconds:.1f} s"
