"""LinkNorm: what the healthy among measured links reach, and which links are not healthy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Self

from autotuner.core.jobs.link_health import LinkHealth
from autotuner.core.jobs.link_points import LinkPoint

__all__ = ["FEWEST_LINKS", "LEAST_DELAY_S", "LEAST_SHARE", "SPREADS", "LinkNorm", "link_health_of"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkNorm:
    """What healthy links reach, and from where on a link is not healthy.

    Attributes:
        delay_s: Of the healthy.
        most_delay_s: More is not healthy.
        bandwidth_bytes_per_s: Of the healthy.
        least_bytes_per_s: Less is not healthy.
    """

    delay_s: float
    most_delay_s: float
    bandwidth_bytes_per_s: float
    least_bytes_per_s: float

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
