"""Link: the latency and bandwidth between devices, as specified, measured, and found to be healthy or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median_low
from typing import Literal, Self, get_args

from autotuner.core.errors import InvalidInput
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.value import (
    CountFromZero,
    NonNegative,
    Positive,
    PositiveShare,
    Seconds,
    Share,
    require_one_of,
    value,
)

MOST_ENDS_OF_ALL_PAIRS = 16
"""Up to so many ends every pair is measured; of more, neighbours and as many others as keep the rounds as few."""


@value
class LinkPoint:
    """A link as both of its ends measured it while neither talked to anybody else."""

    ends: LinkEnds
    """The two nodes that it joins, from 0; in a cluster of one node the two accelerators."""
    delay_s: Seconds
    """One-way, of a message of a few bytes: half of a round trip, the median of many."""
    jitter_s: Seconds
    """Standard deviation of that from message to message, without the rare ones that take far longer."""
    forth_bytes_per_s: Positive
    """What a long message from the lower end to the higher gets."""
    back_bytes_per_s: Positive
    """The other way."""

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


CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@value
class MeasuredCollective:
    """What one kind of collective among so many ranks of this very machine takes: a start, and a time per byte."""

    kind: CollectiveKind
    num_ranks: int
    start_s: Seconds
    s_per_byte: NonNegative
    """Per byte of the whole tensor."""


@value
class Link:
    """What one accelerator can send, one direction, while all others send too."""

    name: str
    """What answers call it."""
    bandwidth_bytes_per_s: Positive
    """What the maker states."""
    latency_s: Seconds
    """One step of a collective over it."""
    start_s: Seconds = 0.0
    """Before a collective's first step."""
    ramp_s: Seconds = 0.0
    """How long a long message takes to fill the link's pipeline (``costmodel.collectives``)."""
    efficiency: PositiveShare = 0.8
    """Share of the bandwidth that long messages reach; 0.74 to 0.95 where it was published."""
    multicast_efficiency: Share = 0.0
    """Share of it where the switches copy and add (NVLink SHARP); 0 where they cannot."""
    congestion: NonNegative = 0.0
    """Exponent by which times grow with the number of nodes; 0 for a network that does not slow down."""
    mesh_peers: CountFromZero = 0
    """Where no switch joins a node, the others that each get an equal part of the bandwidth: 3 in a node of 4. A group
    of two uses one such part. 0 behind a switch."""
    measured: tuple[MeasuredCollective, ...] = ()
    """Collectives as a profile of this machine timed them, in the place of all that; empty without one."""
    source: str = ""
    """Where and when a profile measured it; empty: its maker and the catalog say all that."""

    def with_bandwidth(self, bandwidth_bytes_per_s: float) -> Self:
        """The link with another bandwidth; what was timed on it takes as much longer per byte, and starts as fast."""
        slower = self.bandwidth_bytes_per_s / bandwidth_bytes_per_s
        timed = tuple(replace(line, s_per_byte=slower * line.s_per_byte) for line in self.measured)
        return replace(self, bandwidth_bytes_per_s=bandwidth_bytes_per_s, measured=timed)


FEWEST_LINKS = 3
"""Links that can be told apart; one alone, between two nodes, has no other to be compared with."""

SPREADS = 6.0
"""How many spreads of all links one may lie behind their middle: of normal noise, one link in a thousand million."""

LEAST_DELAY_S = 100e-6
"""Less delay than this is no ailment: a cable's length, a hop more, a rank that was scheduled late."""

LEAST_SHARE = 0.8
"""Nor is a delay, or a time per byte, less than this share above the middle: tiers of switches and sockets differ so.

A link that lost one of two rails takes twice as long per byte, and is found."""

_MAD = 1.4826
"""Median absolute deviations in a standard deviation of normal noise."""


@value
class LinkNorm:
    """What healthy links reach, and from where on a link is not healthy."""

    delay_s: float
    """Of the healthy."""
    most_delay_s: float
    """More is not healthy."""
    bandwidth_bytes_per_s: float
    """Of the healthy."""
    least_bytes_per_s: float
    """Less is not healthy."""

    @classmethod
    def of(cls, points: Sequence[LinkPoint]) -> Self | None:
        """The norm of links that were measured together; None where too few were to compare them.

        The middle and the spread are medians, which hold as long as no more than half of the links ail: one node of
        four, whose three links are half of all, is still found.
        """
        if len(points) < FEWEST_LINKS:
            return None
        delay_s, most_delay_s = _norm(points, lambda point: point.delay_s, LEAST_DELAY_S)
        s_per_byte, most_s_per_byte = _norm(points, lambda point: 1 / point.bandwidth_bytes_per_s, 0.0)
        return cls(
            delay_s=delay_s,
            most_delay_s=most_delay_s,
            bandwidth_bytes_per_s=round(1 / s_per_byte, 3),  # as it was before its reciprocal was taken
            least_bytes_per_s=1 / most_s_per_byte,
        )

    def is_late(self, point: LinkPoint) -> bool:
        """Whether the link delays what it passes, by more than its messages differ among each other."""
        return point.delay_s > self.most_delay_s and point.delay_s - self.delay_s > point.jitter_s

    def is_narrow(self, point: LinkPoint) -> bool:
        """Whether long messages take too long on the link."""
        return point.bandwidth_bytes_per_s < self.least_bytes_per_s


def link_health_of(points: Sequence[LinkPoint], *, bandwidth_bytes_per_s: float, source: str) -> tuple[LinkHealth, ...]:
    """What ails the links among those measured that are not healthy; the others stay unsaid.

    Args:
        points: Links that were measured together.
        bandwidth_bytes_per_s: What the cluster says of such links: one that passes a third of what the healthy among
            the points do has a third of this.
        source: Where and when they were measured.
    """
    norm = LinkNorm.of(points)
    if norm is None:
        return ()
    slow = [point for point in points if norm.is_late(point) or norm.is_narrow(point)]
    return tuple(_health(point, norm, bandwidth_bytes_per_s, source) for point in slow)


def _health(point: LinkPoint, norm: LinkNorm, bandwidth_bytes_per_s: float, source: str) -> LinkHealth:
    is_late, is_narrow = norm.is_late(point), norm.is_narrow(point)
    share = point.bandwidth_bytes_per_s / norm.bandwidth_bytes_per_s
    return LinkHealth(
        ends=point.ends,
        delay_s=point.delay_s - norm.delay_s if is_late else 0.0,
        jitter_s=point.jitter_s if is_late else 0.0,
        bandwidth_bytes_per_s=share * bandwidth_bytes_per_s if is_narrow else None,
        source=source,
    )


def _norm(points: Sequence[LinkPoint], value: Callable[[LinkPoint], float], least: float) -> tuple[float, float]:
    """The middle of the values, and how far above it others may lie; of an even number the lower one is the middle."""
    values = [value(point) for point in points]
    middle = median_low(values)
    spread = _MAD * median_low([abs(each - middle) for each in values])
    return middle, middle + max(SPREADS * spread, LEAST_SHARE * middle, least)


LinkEnds = tuple[int, int]
"""Both ends of a link, the lower first: nodes of a cluster, or accelerators where it has one node."""

LinkClass = Literal["intra_node", "inter_node"]


@value
class LinkHealth:
    """How one link, or every link of a class, differs from what the cluster says."""

    ends: LinkEnds | None = None
    """The two nodes that it joins, from 0; in a cluster of one node the two accelerators. None: all links of
    ``link_class``."""
    link_class: LinkClass | None = None
    """Which links, where no ends are named; else None."""
    delay_s: Seconds = 0.0
    """One-way, on top of the link's latency, for every message."""
    jitter_s: Seconds = 0.0
    """Standard deviation of the delay from message to message."""
    bandwidth_bytes_per_s: Positive | None = None
    """One direction, in the place of the link's; None: as the cluster says."""
    is_dead: bool = False
    """Nothing passes but over the hosts' own network, where ranks delegate their sends."""
    source: str = ""
    """Where and when it was measured; empty: it is assumed."""

    def __post_init__(self) -> None:
        if (self.ends is None) == (self.link_class is None):
            raise InvalidInput("link_health", self.ends, "must name either two ends or a class of links", "inter_node")
        if self.ends is not None:
            _require_ends(self.ends)
        else:
            require_one_of("link_class", str(self.link_class), get_args(LinkClass))
        for name in ("delay_s", "jitter_s", "bandwidth_bytes_per_s"):
            if math.isinf(getattr(self, name) or 0.0):
                raise InvalidInput(name, "inf", "must be finite; a link that passes nothing is dead", "is_dead")

    @property
    def is_healthy(self) -> bool:
        """Whether it says nothing that the cluster does not."""
        return not (self.delay_s or self.jitter_s or self.is_dead or self.bandwidth_bytes_per_s is not None)

    @property
    def severity(self) -> tuple[bool, float, float]:
        """Orders the health of links, the worst last: dead ones, then by delay."""
        return self.is_dead, self.delay_s, -(self.bandwidth_bytes_per_s or 0.0)

    def __str__(self) -> str:
        """The link: ``2_3``, or its class."""
        return str(self.link_class) if self.ends is None else f"{self.ends[0]}_{self.ends[1]}"


def latest(links: Iterable[LinkHealth]) -> tuple[LinkHealth, ...]:
    """What is known of each link or class of links, where of several of one the last counts."""
    return tuple({health.ends or health.link_class: health for health in links}.values())


def _require_ends(ends: LinkEnds) -> None:
    low, high = ends
    if not 0 <= low < high:
        nearest = sorted({abs(low), abs(high)}) if abs(low) != abs(high) else [abs(low), abs(low) + 1]
        raise InvalidInput("ends", list(ends), "must be two different ends from 0, the lower first", str(nearest))


def link_name(health: LinkHealth, *, between_nodes: bool) -> str:
    """The link: ``nodes 2 and 3``, or all of its class."""
    if health.ends is not None:
        return f"{_noun_of_ends(between_nodes)} {health.ends[0]} and {health.ends[1]}"
    return "all links between nodes" if health.link_class == "inter_node" else "all links within a node"


def health_said(health: LinkHealth, *, between_nodes: bool) -> str:
    """One link: ``nodes 2 and 3: 30 ms late (± 1.2 ms), measured 2026-11-22``."""
    found = ", ".join(_ailments(health)) or "healthy"
    return f"{link_name(health, between_nodes=between_nodes)}: {found}, {health.source or 'assumed'}"


def links_in_brief(health: Sequence[LinkHealth], *, between_nodes: bool) -> str:
    """What ails links, as roughly as one day is like the next: ``nodes 2 and 3: 60 ms late``; empty of healthy ones."""
    rough = [
        replace(one, delay_s=_rounded(one.delay_s), jitter_s=0.0, bandwidth_bytes_per_s=_rate(one)) for one in health
    ]
    said = (
        f"{link_name(one, between_nodes=between_nodes)}: {', '.join(_ailments(one))}"
        for one in rough
        if not one.is_healthy
    )
    return "; ".join(said)


def _rounded(value: float) -> float:
    """To one digit: what differs by less differs from measurement to measurement."""
    return float(f"{value:.1g}")


def _rate(health: LinkHealth) -> float | None:
    return None if health.bandwidth_bytes_per_s is None else _rounded(health.bandwidth_bytes_per_s)


def links_compared(points: Sequence[LinkPoint], *, between_nodes: bool) -> str:
    """Which links were measured, what they typically reach, and what would not be healthy; empty where none was."""
    if not points:
        return ""
    ends, what = num_ends(points), _noun_of_ends(between_nodes)
    all_pairs = ends * (ends - 1) // 2
    if len(points) < all_pairs:
        which = f"{len(points)} of {all_pairs} links between {ends} {what}, neighbours in a ring and a sample"
    else:
        which = f"{len(points)} link{'' if len(points) == 1 else 's'} between {ends} {what}"
    norm = LinkNorm.of(points)
    if norm is None:
        (first, *_) = points
        about = f"{format_seconds(first.delay_s)} one way and {format_rate(first.bandwidth_bytes_per_s, 'B/s')}"
        return f"{which}: {about}; fewer than {FEWEST_LINKS} have too few others to be compared with"
    return (
        f"{which}: typically {format_seconds(norm.delay_s)} one way and "
        f"{format_rate(norm.bandwidth_bytes_per_s, 'B/s')}; unhealthy beyond {format_seconds(norm.most_delay_s)} or "
        f"below {format_rate(norm.least_bytes_per_s, 'B/s')}"
    )


def links_judged(health: Sequence[LinkHealth], points: Sequence[LinkPoint], *, between_nodes: bool) -> list[str]:
    """A line for each link that is not healthy, or one that says that all are; none where none could be compared."""
    norm = LinkNorm.of(points)
    if norm is None:
        return []
    if not health and any(norm.is_late(point) or norm.is_narrow(point) for point in points):
        measured = f"measured between {num_ends(points)} {_noun_of_ends(between_nodes)}"
        return [f"{measured}; there are others now, of which it says nothing"]
    return [health_said(each, between_nodes=between_nodes) for each in health] or ["no link is unhealthy"]


def _ailments(health: LinkHealth) -> Iterator[str]:
    if health.is_dead:
        yield "dead"
    if health.delay_s:
        jitter = f" (± {format_seconds(health.jitter_s)})" if health.jitter_s else ""
        yield f"{format_seconds(health.delay_s)} late{jitter}"
    elif health.jitter_s:
        yield f"± {format_seconds(health.jitter_s)}"
    if health.bandwidth_bytes_per_s is not None:
        yield f"{format_bytes(health.bandwidth_bytes_per_s)}/s"


def _noun_of_ends(between_nodes: bool) -> str:
    return "nodes" if between_nodes else "accelerators"
