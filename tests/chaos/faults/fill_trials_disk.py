"""The disk of the trials' folder is full for a while."""

from __future__ import annotations

from tests.chaos.scene import Scene


def strike(scene: Scene) -> str:
    """Not a byte left for the files of trials, then all of it: no layout may lose its rank by that."""
    scene.trials_disk.fill()
    seconds = scene.beyond_the_lease()
    scene.trials_disk.empty()
    return f"disk of trials full for {seconds:.1f} s"
