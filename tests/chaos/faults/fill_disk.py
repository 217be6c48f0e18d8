"""The disk of the database is full for a while."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """Not a byte left, then all of it."""
    scene.database.disk.fill()
    seconds = scene.beyond_the_lease()
    scene.database.disk.empty()
    return f"disk full for {seconds:.1f} s"
