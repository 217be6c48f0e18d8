"""A worker is killed, and its supervisor starts it again."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to a worker."""
    worker = scene.chance.choice(scene.workers)
    worker.kill()
    return f"SIGKILL to {worker.spec.name}, away for {scene.a_moment():.1f} s"
