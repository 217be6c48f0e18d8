"""SlowLinks: what the state of a cluster's links does to groups of ranks that reach over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np

from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.link import LinkHealth, latest
from autotuner.core.placement import Spread, dealt_crosses

DEAD_S = 1e6
"""What a message takes over a dead link: never, but finite, so that sums and differences of times stay numbers."""

Crosses: TypeAlias = Callable[[Spread, LinkHealth, Cluster], bool]
"""Whether groups that lie so reach over a link: ``ring_crosses`` or ``pair_crosses``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLinks:
    """What the slowest link of the slowest group adds, one row per layout.

    Attributes:
        delay_s: One-way, to every message over it.
        slowdown: Time of a byte over that of a link as the cluster says.
    """

    delay_s: Floats
    slowdown: Floats

    @classmethod
    def none(cls, size: int) -> SlowLinks:
        """Links as the cluster says."""
        return cls(delay_s=np.zeros(size), slowdown=np.ones(size))

    def where(self, rows: Booleans) -> SlowLinks:
        """What ails the groups of some rows; those of all others have links as the cluster says."""
        return SlowLinks(delay_s=np.where(rows, self.delay_s, 0.0), slowdown=np.where(rows, self.slowdown, 1.0))

    def over(self, rows: Booleans, health: LinkHealth, cluster: Cluster) -> SlowLinks:
        """With one more link, over which the groups of some rows reach; a class of links speaks for itself."""
        factor, late_s = slowdown(health, cluster), DEAD_S if health.is_dead else health.delay_s
        slower = np.maximum(self.slowdown, factor) if health.ends is not None else np.full_like(self.slowdown, factor)
        return SlowLinks(
            delay_s=np.where(rows, np.maximum(self.delay_s, late_s), self.delay_s),
            slowdown=np.where(rows, slower, self.slowdown),
        )


def slow_of(x: LayoutColumns, cluster: Cluster, crosses: Crosses, *spreads: Spread) -> SlowLinks | None:
    """What ails the groups of some layouts; None in a cluster whose links are all as it says.

    The job waits for the slowest of all groups of an axis, so that one of them decides.
    """
    if not cluster.link_health:
        return None
    slow, is_dealt = SlowLinks.none(len(x)), x.rank_placement == RankPlacement.CYCLIC
    for health in classes_first(cluster):
        rows = np.zeros(len(x), dtype=np.bool_)
        for spread in spreads:
            filled = cast("Booleans", crosses(spread, health, cluster))
            rows |= np.where(is_dealt, dealt_crosses(spread, health, cluster), filled) if is_dealt.any() else filled
        slow = slow.over(rows, health, cluster)
    return slow


def classes_first(cluster: Cluster) -> list[LinkHealth]:
    """What is known of links, each of them once: first whole classes, which single links then differ from."""
    return sorted(latest(cluster.link_health), key=lambda health: health.ends is not None)


def slowdown(health: LinkHealth, cluster: Cluster) -> float:
    """Time of a byte over that of a link as the cluster says."""
    known = health.bandwidth_bytes_per_s
    return 1.0 if known is None else cluster.link_between_ends.bandwidth_bytes_per_s / known
