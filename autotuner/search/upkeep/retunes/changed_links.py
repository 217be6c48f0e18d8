"""Whether a cluster's links are others than they were, beyond what one measurement differs from the next."""

from __future__ import annotations

from autotuner.core.cluster import Cluster
from autotuner.core.link import links_in_brief

_LEAST_CHANGE = 0.25
"""Of the bandwidth between nodes. An assumption: checks of a network that nothing befell differ by less."""


def links_changed(then: Cluster, now: Cluster) -> bool:
    """Whether single links ail otherwise, or the network between nodes became faster or slower as a whole."""
    return _ailments(then) != _ailments(now) or _bandwidth_changed(then, now)


def _ailments(cluster: Cluster) -> str:
    return links_in_brief(cluster.link_health, between_nodes=cluster.num_nodes > 1)


def _bandwidth_changed(then: Cluster, now: Cluster) -> bool:
    if now.num_nodes == 1:
        return False
    before, after = (one.inter_node_link.bandwidth_bytes_per_s for one in (then, now))
    return abs(after - before) > _LEAST_CHANGE * max(before, after)
