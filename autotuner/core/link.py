"""Link: the latency and bandwidth between devices, and the detection of degraded links."""

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
"""Number of ends up to which every pair of ends is measured. With more ends, only neighbours and a sample of other
pairs are measured, so that the number of rounds stays the same."""


@value
class LinkPoint:
    """A measurement of one link by both of its ends, made while neither of them communicated with anyone else."""

    ends: LinkEnds
    """The two nodes that the link joins, numbered from 0; in a cluster of one node, the two accelerators."""
    delay_s: Seconds
    """One-way delay of a message of a few bytes: half of the median round trip."""
    jitter_s: Seconds
    """Standard deviation of the delay from message to message, without rare outliers."""
    forth_bytes_per_s: Positive
    """Bandwidth of a long message from the lower end to the higher."""
    back_bytes_per_s: Positive
    """Bandwidth of a long message in the other direction."""

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """The bandwidth of the link in its slower direction. Ranks wait for the slower direction."""
        return min(self.forth_bytes_per_s, self.back_bytes_per_s)


def num_ends(points: Sequence[LinkPoint]) -> int:
    """Return the number of ends (nodes or accelerators) that were measured; 0 if there are no points.

    Ends are numbered from 0.
    """
    return max((point.ends[1] + 1 for point in points), default=0)


def link_rounds(num_ends: int) -> list[list[LinkEnds]]:
    """Return the rounds of a measurement of single links. The pairs of ends in one round measure at the same time.

    No end belongs to two pairs of a round. With up to 16 ends, the rounds contain all pairs, and their number is as
    small as possible (the circle method of round-robin tournaments). With more ends there are 15 rounds: first the
    pairs of neighbours in a ring, then a sample of the rounds of all pairs.

    Args:
        num_ends: Number of ends: nodes or, in a cluster of one node, accelerators.

    Example:
        >>> link_rounds(4)
        [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(0, 1), (2, 3)]]
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
    """Return rounds of measurements that together contain every pair of ends once.

    If the number of ends is odd, one end rests in each round.
    """
    size = num_ends + num_ends % 2
    rounds = []
    for turn in range(size - 1):
        circle = [(turn + place) % (size - 1) for place in range(size - 1)]
        pairs = [(circle[0], size - 1), *((circle[at], circle[-at]) for at in range(1, size // 2))]
        rounds.append(sorted(_ends(*pair) for pair in pairs if max(pair) < num_ends))
    return rounds


def _ring(num_ends: int) -> list[list[LinkEnds]]:
    """Return rounds in which every end measures with the next one, and the last with the first."""
    rounds = [[(low, low + 1) for low in range(first, num_ends - 1, 2)] for first in (0, 1)]
    closing = (0, num_ends - 1)
    return [rounds[0], [closing, *rounds[1]]] if num_ends % 2 == 0 else [*rounds, [closing]]


def _ends(one: int, other: int) -> LinkEnds:
    return min(one, other), max(one, other)


CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@value
class MeasuredCollective:
    """The measured time of one kind of collective on one number of ranks: a start time plus a time per byte."""

    kind: CollectiveKind
    num_ranks: int
    start_s: Seconds
    s_per_byte: NonNegative
    """Measured seconds per byte of the whole tensor."""


@value
class Link:
    """A link: the bandwidth and latency of one accelerator in one direction, while all accelerators send."""

    name: str
    """Name of the link in answers."""
    bandwidth_bytes_per_s: Positive
    """Bandwidth of the link, as its maker states it."""
    latency_s: Seconds
    """Time of one step of a collective over the link."""
    start_s: Seconds = 0.0
    """Time before a collective's first step."""
    ramp_s: Seconds = 0.0
    """Time that a long message takes to fill the link's pipeline (``costmodel.collectives``)."""
    efficiency: PositiveShare = 0.8
    """Share of the bandwidth that long messages reach; published values are 0.74 to 0.95."""
    multicast_efficiency: Share = 0.0
    """Share of the bandwidth that collectives reach if the switches copy and add data (NVLink SHARP); 0 if they
    cannot."""
    congestion: NonNegative = 0.0
    """Exponent of the number of nodes by which times grow because of congestion; 0: the network does not slow down."""
    mesh_peers: CountFromZero = 0
    """Number of other accelerators among which an accelerator divides its bandwidth equally, in a node without a
    switch: 3 in a node of 4. A group of two accelerators uses one such part. 0 in a node with a switch."""
    measured: tuple[MeasuredCollective, ...] = ()
    """Times of collectives that a profile of this machine measured. They replace the values above; empty without a
    profile."""
    source: str = ""
    """Place and date of the profile that measured the link; empty: the values are from the maker and the catalog."""

    def with_bandwidth(self, bandwidth_bytes_per_s: float) -> Self:
        """Return the link with another bandwidth. The measured times per byte are scaled to match this bandwidth."""
        slower = self.bandwidth_bytes_per_s / bandwidth_bytes_per_s
        timed = tuple(replace(line, s_per_byte=slower * line.s_per_byte) for line in self.measured)
        return replace(self, bandwidth_bytes_per_s=bandwidth_bytes_per_s, measured=timed)


FEWEST_LINKS = 3
"""Fewest links that can be compared with each other to find degraded ones."""

SPREADS = 6.0
"""Number of standard deviations above the median at which a link counts as degraded. With normal noise, one link in a
thousand million is beyond it."""

LEAST_DELAY_S = 100e-6
"""Smallest additional delay that counts as a fault. A longer cable, one more hop or a rank that was scheduled late adds
less."""

LEAST_SHARE = 0.8
"""Smallest relative excess over the median that counts as a fault, of a delay or of a time per byte. Tiers of switches
and sockets differ by less. A link that lost one of two rails takes twice as long per byte and is found."""

_MAD = 1.4826
"""Number of median absolute deviations in one standard deviation of normal noise."""


@value
class LinkNorm:
    """The typical delay and bandwidth of links that are not degraded, and the limits from which a link is degraded."""

    delay_s: float
    """Typical delay of links that are not degraded."""
    most_delay_s: float
    """Highest delay of a link that is not degraded."""
    bandwidth_bytes_per_s: float
    """Typical bandwidth of links that are not degraded."""
    least_bytes_per_s: float
    """Lowest bandwidth of a link that is not degraded."""

    @classmethod
    def of(cls, points: Sequence[LinkPoint]) -> Self | None:
        """Return the typical values and limits for links that were measured together; None for fewer than three links.

        Typical values are medians. They stay close to those of good links while at most half of the links are degraded.
        So the limits still find one bad node out of four, although half of all links lead to this node.
        """
        if len(points) < FEWEST_LINKS:
            return None
        delay_s, most_delay_s = _norm(points, lambda point: point.delay_s, LEAST_DELAY_S)
        s_per_byte, most_s_per_byte = _norm(points, lambda point: 1 / point.bandwidth_bytes_per_s, 0.0)
        return cls(
            delay_s=delay_s,
            most_delay_s=most_delay_s,
            bandwidth_bytes_per_s=round(1 / s_per_byte, 3),  # rounded, because inverting twice is not exact
            least_bytes_per_s=1 / most_s_per_byte,
        )

    def is_late(self, point: LinkPoint) -> bool:
        """Return True if the link's delay is above the limit, and above the typical delay by more than the jitter.

        The jitter is the standard deviation of the link's delay from message to message.
        """
        return point.delay_s > self.most_delay_s and point.delay_s - self.delay_s > point.jitter_s

    def is_narrow(self, point: LinkPoint) -> bool:
        """Return True if the link's bandwidth is below the limit."""
        return point.bandwidth_bytes_per_s < self.least_bytes_per_s


def link_health_of(points: Sequence[LinkPoint], *, bandwidth_bytes_per_s: float, source: str) -> tuple[LinkHealth, ...]:
    """Return the state of each degraded link among the measured links. Links that are not degraded are left out.

    Args:
        points: Links that were measured together.
        bandwidth_bytes_per_s: Bandwidth that the cluster's description states for its links. A link that reaches a
            third of the typical measured bandwidth gets a third of this bandwidth.
        source: Place and date of the measurement.
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
    """Return the lower median of the measured values, and the limit above which a value counts as a fault."""
    values = [value(point) for point in points]
    middle = median_low(values)
    spread = _MAD * median_low([abs(each - middle) for each in values])
    return middle, middle + max(SPREADS * spread, LEAST_SHARE * middle, least)


LinkEnds = tuple[int, int]
"""The two ends of a link, the lower number first: nodes of a cluster, or accelerators of a cluster of one node."""

LinkClass = Literal["intra_node", "inter_node"]


@value
class LinkHealth:
    """The state of one link, or of all links inside or between nodes, if it differs from the cluster's description.

    Example:
        >>> health = LinkHealth(ends=(2, 3), delay_s=0.03)
        >>> str(health), health.is_healthy
        ('2_3', False)
    """

    ends: LinkEnds | None = None
    """The two nodes that the link joins, numbered from 0; in a cluster of one node, the two accelerators. None: all
    links of ``link_class``."""
    link_class: LinkClass | None = None
    """Class of links that have this state; None if ``ends`` names a single link."""
    delay_s: Seconds = 0.0
    """One-way delay of every message, on top of the link's latency."""
    jitter_s: Seconds = 0.0
    """Standard deviation of the delay from message to message."""
    bandwidth_bytes_per_s: Positive | None = None
    """Present bandwidth in one direction, which replaces the link's; None: as the cluster states it."""
    is_dead: bool = False
    """True if the link passes no data. Ranks that delegate their sends then use the hosts' own network."""
    source: str = ""
    """Place and date of the measurement; empty: the state was assumed, not measured."""

    def __post_init__(self) -> None:
        if (self.ends is None) == (self.link_class is None):
            raise InvalidInput(
                "link_health", self.ends, "must name either two ends, or a class of links such as inter_node"
            )
        if self.ends is not None:
            _require_ends(self.ends)
        else:
            require_one_of("link_class", str(self.link_class), get_args(LinkClass))
        for name in ("delay_s", "jitter_s", "bandwidth_bytes_per_s"):
            if math.isinf(getattr(self, name) or 0.0):
                raise InvalidInput(
                    name, "inf", "must be finite; for a link that carries no data, set is_dead to true instead"
                )

    @property
    def is_healthy(self) -> bool:
        """True if the link is nominal: no delay, no jitter, no lower bandwidth, and not dead."""
        return not (self.delay_s or self.jitter_s or self.is_dead or self.bandwidth_bytes_per_s is not None)

    @property
    def severity(self) -> tuple[bool, float, float]:
        """A sort key that puts the worst link states last.

        Dead links are the worst. Other states are ordered by delay, then by bandwidth (the lower the worse).
        """
        return self.is_dead, self.delay_s, -(self.bandwidth_bytes_per_s or 0.0)

    def __str__(self) -> str:
        """Return the link's name: its ends such as ``2_3``, or its class."""
        return str(self.link_class) if self.ends is None else f"{self.ends[0]}_{self.ends[1]}"


def latest(links: Iterable[LinkHealth]) -> tuple[LinkHealth, ...]:
    """Return one state per link or class of links. If several states are given for one, the last one is returned.

    A class is all links inside nodes (``intra_node``) or all links between nodes (``inter_node``).
    """
    return tuple({health.ends or health.link_class: health for health in links}.values())


def _require_ends(ends: LinkEnds) -> None:
    low, high = ends
    if not 0 <= low < high:
        nearest = sorted({abs(low), abs(high)}) if abs(low) != abs(high) else [abs(low), abs(low) + 1]
        raise InvalidInput(
            "ends",
            list(ends),
            "must be the numbers of the two ends of a link (nodes, or accelerators of a node), 0 or more, "
            "with the lower number first",
            str(nearest),
        )


def link_name(health: LinkHealth, *, between_nodes: bool) -> str:
    """Return the name of a link in sentences: ``nodes 2 and 3``, or ``all links between nodes`` for a class.

    Args:
        health: State of the link.
        between_nodes: True if the ends of links are nodes; False: accelerators.
    """
    if health.ends is not None:
        return f"{_noun_of_ends(between_nodes)} {health.ends[0]} and {health.ends[1]}"
    return "all links between nodes" if health.link_class == "inter_node" else "all links within a node"


def health_said(health: LinkHealth, *, between_nodes: bool) -> str:
    """Return the state of a link as text: ``nodes 2 and 3: 30 ms late (± 1.2 ms), measured 2026-11-22``.

    Args:
        health: State of the link.
        between_nodes: True if the ends of links are nodes; False: accelerators.
    """
    found = ", ".join(_ailments(health)) or "healthy"
    return f"{link_name(health, between_nodes=between_nodes)}: {found}, {health.source or 'assumed'}"


def links_in_brief(health: Sequence[LinkHealth], *, between_nodes: bool) -> str:
    """Return the states of degraded links as a short text: ``nodes 2 and 3: 60 ms late``.

    Values are rounded to one digit, so that measurements on different days give the same text.

    Args:
        health: States of links.
        between_nodes: True if the ends of links are nodes; False: accelerators.
    """
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
    """Return a value rounded to one digit, because repeated measurements differ by less than that."""
    return float(f"{value:.1g}")


def _rate(health: LinkHealth) -> float | None:
    return None if health.bandwidth_bytes_per_s is None else _rounded(health.bandwidth_bytes_per_s)


def links_compared(points: Sequence[LinkPoint], *, between_nodes: bool) -> str:
    """Return a sentence about measured links: their number, typical values and limits; empty if none was measured.

    Args:
        points: Links that were measured together.
        between_nodes: True if the ends of links are nodes; False: accelerators.
    """
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
        return f"{which}: {about}; fewer than {FEWEST_LINKS} links are too few to be compared with each other"
    return (
        f"{which}: typically {format_seconds(norm.delay_s)} one way and "
        f"{format_rate(norm.bandwidth_bytes_per_s, 'B/s')}; unhealthy beyond {format_seconds(norm.most_delay_s)} or "
        f"below {format_rate(norm.least_bytes_per_s, 'B/s')}"
    )


def links_judged(health: Sequence[LinkHealth], points: Sequence[LinkPoint], *, between_nodes: bool) -> list[str]:
    """Return one line per degraded link, or one line that says that no link is degraded.

    The result is empty if too few links were measured to compare them with each other.

    Args:
        health: States of the degraded links.
        points: Links that were measured together.
        between_nodes: True if the ends of links are nodes; False: accelerators.
    """
    norm = LinkNorm.of(points)
    if norm is None:
        return []
    if not health and any(norm.is_late(point) or norm.is_narrow(point) for point in points):
        measured = f"measured between {num_ends(points)} {_noun_of_ends(between_nodes)}"
        return [(f"{measured}; the cluster has others now, so the measurement does not say which links are unhealthy")]
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
