"""What every picture of timelines has beside it: parts of a lane's seconds, meaning of the colours, ways to look on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from api.dashboard.charts.lane import KIND_CLASSES, KIND_WORDS
from api.dashboard.charts.window import Window
from autotuner.core.timeline import BlockKind, RankTimeline

PARTS = (
    *(("forward_s", "forward"), ("backward_s", "backward"), ("weight_s", "weight gradient"), ("send_s", "send")),
    *(("sync_s", "gradient sync"), ("optimizer_s", "optimizer"), ("idle_s", "idle")),
)
"""Fields of a lane's seconds, and what a table calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLink:
    """A way to look elsewhere; ``is_on`` where it is taken already, and ``key`` presses it."""

    name: str
    address: str
    is_on: bool = False
    key: str = ""


def colours(lanes: Iterable[RankTimeline]) -> dict[str, str]:
    """Class of every colour that blocks of the lanes have, with the words for all that has it."""
    kinds = {block.kind for lane in lanes for block in lane.blocks}
    words: dict[str, list[str]] = {}
    for kind in filter(kinds.__contains__, BlockKind):
        of_look = words.setdefault(KIND_CLASSES[kind], [])
        if KIND_WORDS[kind] not in of_look:
            of_look.append(KIND_WORDS[kind])
    return {look: ", ".join(of_look) for look, of_look in words.items()}


def moves(window: Window, address: Callable[[Window], str]) -> tuple[TimelineLink, ...]:
    """Where to look closer or farther; without those that lead nowhere."""
    ways = (
        ("Closer", window.closer, "+"),
        ("Farther", window.farther, "-"),
        ("Earlier", window.earlier, "ArrowLeft"),
        ("Later", window.later, "ArrowRight"),
        ("Whole step", Window(0.0, 1.0), "0"),
    )
    return tuple(
        TimelineLink(name=name, address=address(to), key=key) for name, to, key in ways if str(to) != str(window)
    )
