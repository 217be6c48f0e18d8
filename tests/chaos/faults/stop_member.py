"""A member is stopped for longer than its lease is kept, and goes on as if nothing had been."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """SIGSTOP to a service or a worker, then SIGCONT."""
    member = scene.some_member()
    member.stop()
    seconds = scene.beyond_the_lease()
    member.go_on()
    return f"SIGSTOP to {member.spec.name} for {seconds:.1f} s"
