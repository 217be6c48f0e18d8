"""A rank is killed by somebody who is not the kernel."""

from __future__ import annotations

import contextlib

import psutil

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGKILL to a rank."""
    rank = scene.chance.choice(scene.ranks())
    with contextlib.suppress(psutil.NoSuchProcess):
        rank.kill()
    return f"SIGKILL to rank {rank.pid}"
