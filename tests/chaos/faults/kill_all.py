"""The machine of all members fails, and starts again."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to every member."""
    for member in scene.members:
        member.kill()
    return f"SIGKILL to all, away for {scene.a_moment():.1f} s"
