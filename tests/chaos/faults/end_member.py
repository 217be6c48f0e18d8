"""A member is told to end, as by an upgrade, and started again."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGTERM to a service or a worker."""
    member = scene.some_member()
    member.end()
    return f"SIGTERM to {member.spec.name}, away for {scene.a_moment():.1f} s"
