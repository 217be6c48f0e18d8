"""Everything fails, and services are back before their database is."""

from __future__ import annotations

from tests.chaos.databases import PostgresqlServer
from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to all; members start while PostgreSQL is away, or the disk of the file is full."""
    for member in scene.members:
        member.kill()
    server = scene.database
    server.kill() if isinstance(server, PostgresqlServer) else server.disk.fill()
    for member in scene.members:
        member.start()
    seconds = scene.beyond_the_lease()
    for member in scene.members:
        assert member.is_alive, f"{member.spec.name} does not wait for its database"
    server.disk.empty()
    return f"members are back {seconds:.1f} s before their database"
