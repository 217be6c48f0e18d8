"""The process that forks ranks is killed, and its ranks die with it."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to a zygote."""
    zygote = scene.chance.choice(scene.zygotes())
    zygote.kill()
    return f"SIGKILL to zygote {zygote.pid}"
