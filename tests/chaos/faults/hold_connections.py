"""The network to PostgreSQL passes nothing on for a while, and says nothing."""

from __future__ import annotations

from tests.chaos.databases import PostgresqlServer
from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """Hold every byte on its way; then pass them on, or reset what they came by."""
    server = scene.database
    assert isinstance(server, PostgresqlServer)
    assert server.proxy is not None
    server.proxy.hold()
    seconds = scene.beyond_the_lease()
    if is_cut := scene.chance.random() < 0.5:
        server.proxy.cut()
    server.proxy.let_go()
    return f"network silent for {seconds:.1f} s" + (", then reset" * is_cut)
