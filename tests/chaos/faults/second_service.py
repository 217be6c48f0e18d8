"""Another service begins on the same database, and goes again."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """One service more; it is killed or ends in good order."""
    other = scene.spare()
    other.start()
    other.wait_until_it_answers()
    seconds = scene.beyond_the_lease()
    is_killed = scene.chance.random() < 0.5
    other.kill() if is_killed else other.end()
    return f"a second service for {seconds:.1f} s, " + ("killed" if is_killed else "ended")
