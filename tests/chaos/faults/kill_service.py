"""A service is killed, and its supervisor starts it again."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to a service."""
    service = scene.chance.choice(scene.services)
    service.kill()
    return f"SIGKILL to {service.spec.name}, away for {scene.a_moment():.1f} s"
