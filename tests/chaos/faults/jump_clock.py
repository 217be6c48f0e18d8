"""The wall clock of a member jumps, and later back."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """Another time on one member, by minutes or hours, forward or back."""
    member = scene.some_member()
    jump_s = scene.chance.choice([-1, 1]) * scene.chance.choice([20.0, 600.0, 7200.0])
    member.put_clock(jump_s)
    if is_killed := scene.chance.random() < 0.5:
        scene.a_moment()
        member.kill()
    seconds = scene.beyond_the_lease()
    member.put_clock(0.0)
    return f"clock of {member.spec.name} {jump_s:+.0f} s for {seconds:.1f} s" + (", killed meanwhile" * is_killed)
