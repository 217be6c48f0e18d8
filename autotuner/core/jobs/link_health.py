"""LinkHealth: how a link differs today from what the cluster says of its kind, as it was measured or is assumed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from autotuner.core import check
from autotuner.errors import InvalidInput

__all__ = ["LinkClass", "LinkEnds", "LinkHealth", "latest"]

LinkEnds = tuple[int, int]
"""Both ends of a link, the lower first: nodes of a cluster, or accelerators where it has one node."""

LinkClass = Literal["intra_node", "inter_node"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHealth:
    """How one link, or every link of a class, differs from what the cluster says.

    Attributes:
        ends: The two nodes that it joins, from 0; in a cluster of one node the two accelerators. None: all links of
            ``link_class``.
        link_class: Which links, where no ends are named; else None.
        delay_s: One-way, on top of the link's latency, for every message.
        jitter_s: Standard deviation of the delay from message to message.
        bandwidth_bytes_per_s: One direction, in the place of the link's; None: as the cluster says.
        is_dead: Nothing passes but over the hosts' own network, where ranks delegate their sends.
        source: Where and when it was measured; empty: it is assumed.
    """

    ends: LinkEnds | None = None
    link_class: LinkClass | None = None
    delay_s: float = 0.0
    jitter_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    is_dead: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if (self.ends is None) == (self.link_class is None):
            raise InvalidInput("link_health", self.ends, "must name either two ends or a class of links", "inter_node")
        if self.ends is not None:
            _require_ends(self.ends)
        else:
            check.one_of("link_class", str(self.link_class), get_args(LinkClass))
        check.non_negative(self, "delay_s", "jitter_s")
        if self.bandwidth_bytes_per_s is not None:
            check.positive(self, "bandwidth_bytes_per_s")
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
