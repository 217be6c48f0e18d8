"""LinkPoint: what the ends of one link measured of it, and in which order the links of a cluster are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core import check
from autotuner.core.jobs.link_health import LinkEnds

__all__ = ["MOST_ENDS_OF_ALL_PAIRS", "LinkPoint", "link_rounds", "num_ends"]

MOST_ENDS_OF_ALL_PAIRS = 16
"""Up to so many ends every pair is measured; of more, neighbours and as many others as keep the rounds as few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPoint:
    """A link as both of its ends measured it while neither talked to anybody else.

    Attributes:
        ends: The two nodes that it joins, from 0; in a cluster of one node the two accelerators.
        delay_s: One-way, of a message of a few bytes: half of a round trip, the median of many.
        jitter_s: Standard deviation of that from message to message, without the rare ones that take far longer.
        forth_bytes_per_s: What a long message from the lower end to the higher gets.
        back_bytes_per_s: The other way.
    """

    ends: LinkEnds
    delay_s: float
    jitter_s: float
    forth_bytes_per_s: float
    back_bytes_per_s: float

    def __post_init__(self) -> None:
        check.non_negative(self, "delay_s", "jitter_s")
        check.positive(self, "forth_bytes_per_s", "back_bytes_per_s")

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Of the slower direction, which is the one that ranks wait for."""
        return min(self.forth_bytes_per_s, self.back_bytes_per_s)


def num_ends(points: Sequence[LinkPoint]) -> int:
    """Ends that were measured, which are numbered from 0; 0 without a point."""
    return max((point.ends[1] + 1 for point in points), default=0)


def link_rounds(num_ends: int) -> list[list[LinkEnds]]:
    """Which pairs measure at once, round after round: in a round no end meets two others.

    All pairs of up to 16 ends, in the fewest rounds that there are (the circle method of round-robin tournaments).
    Of more ends, neighbours in a ring, and rounds of that tournament spread evenly until there are 15 in all.
    """
    if num_ends < 2:
        return []
    rounds = _tournament(num_ends)
    if num_ends <= MOST_ENDS_OF_ALL_PAIRS:
        return rounds
    ring = _ring(num_ends)
    known = {pair for pairs in ring for pair in pairs}
    more = MOST_ENDS_OF_ALL_PAIRS - 1 - len(ring)
    sample = [rounds[number * len(rounds) // more] for number in range(more)]
    return ring + [[pair for pair in pairs if pair not in known] for pairs in sample]


def _tournament(num_ends: int) -> list[list[LinkEnds]]:
    """Every pair once; where the number is odd, one end rests in each round."""
    size = num_ends + num_ends % 2
    rounds = []
    for turn in range(size - 1):
        circle = [(turn + place) % (size - 1) for place in range(size - 1)]
        pairs = [(circle[0], size - 1), *((circle[at], circle[-at]) for at in range(1, size // 2))]
        rounds.append(sorted(_ends(*pair) for pair in pairs if max(pair) < num_ends))
    return rounds


def _ring(num_ends: int) -> list[list[LinkEnds]]:
    """Every end with the next, the last with the first."""
    rounds = [[(low, low + 1) for low in range(first, num_ends - 1, 2)] for first in (0, 1)]
    closing = (0, num_ends - 1)
    return [rounds[0], [closing, *rounds[1]]] if num_ends % 2 == 0 else [*rounds, [closing]]


def _ends(one: int, other: int) -> LinkEnds:
    return min(one, other), max(one, other)
