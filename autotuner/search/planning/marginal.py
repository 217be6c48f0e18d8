"""Marginal: what one more node, twice the network or more memory of the chosen cluster would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.units import GIGA
from autotuner.search.planning.best_layouts import SearchedCluster, moved_outcome, searched_cluster
from autotuner.search.planning.outcome import Outcome
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import Offer, changed

_MORE_MEMORY_BYTES = 40 * GIGA

_NODE_FACTORS = (9 / 8, 5 / 4, 3 / 2, 2)
"""Times the nodes that are tried where one more is of no use: sizes that divide batches and layers."""

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """A change of a cluster, and what the run gains by it.

    Attributes:
        change: In words: ``1 more node``, ``twice the network``, ``40 GB more memory``.
        outcome: What the run takes with it; None where no layout uses it.
        num_nodes: Nodes that the change adds; gains are of all of them together.
        saved_s: Time of the run that it saves.
        saved_cost: US dollars of the run that it saves; below 0 where it costs more.
        mfu: What it adds to the MFU.
        price_per_hour: What it adds to the price of an hour of the cluster.
    """

    change: str
    outcome: Outcome | None
    num_nodes: int = 0
    saved_s: float = 0.0
    saved_cost: float = 0.0
    mfu: float = 0.0
    price_per_hour: float = 0.0

    @classmethod
    def between(cls, change: str, before: Outcome, after: Outcome) -> Marginal:
        """What the second outcome has over the first."""
        return cls(
            change=change,
            outcome=after,
            num_nodes=after.cluster.num_nodes - before.cluster.num_nodes,
            saved_s=before.time_s.median - after.time_s.median,
            saved_cost=before.cost.median - after.cost.median,
            mfu=after.mfu - before.mfu,
            price_per_hour=after.footprint.price_per_hour - before.footprint.price_per_hour,
        )

    @property
    def mfu_per_dollar(self) -> float | None:
        """MFU, 0..1, for each dollar that an hour of the cluster costs more; None where it costs none."""
        return self.mfu / self.price_per_hour if self.price_per_hour > 0 else None

    @property
    def hours_per_dollar(self) -> float | None:
        """Hours of the run saved for each dollar that it costs more; None where it costs no more."""
        return self.saved_s / _S_PER_HOUR / -self.saved_cost if self.saved_cost < 0 else None

    @property
    def worth_per_accelerator_hour(self) -> float | None:
        """Dollars that an accelerator-hour may cost more before the run does; None for more nodes, or no gain."""
        if self.outcome is None or self.num_nodes:
            return None
        hours = self.outcome.accelerator_hours.median
        return max(0.0, self.saved_cost / hours + self.price_per_hour / self.outcome.cluster.world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginals:
    """Changes of the chosen cluster, and which of their clusters have too many layouts to be looked through.

    Attributes:
        too_large: A sentence without a full stop for each of these.
    """

    found: tuple[Marginal, ...]
    too_large: tuple[str, ...] = ()


def marginals(request: PlanRequest, offer: Offer, chosen: Outcome) -> Marginals:
    """What each change of the chosen cluster buys."""
    cluster = chosen.cluster
    faster = changed(cluster, request.change_prices, network_factor=2.0)
    larger = changed(cluster, request.change_prices, extra_bytes=_MORE_MEMORY_BYTES)
    found = [_more_nodes(request, offer, chosen)]
    if cluster.num_nodes > 1:
        found.append(_changed(request, faster, "twice the network", chosen))
    found.append(_changed(request, larger, "40 GB more memory", chosen))
    return Marginals(
        found=tuple(one for each in found for one in each.found),
        too_large=tuple(sentence for each in found for sentence in each.too_large),
    )


def _changed(request: PlanRequest, cluster: Cluster, change: str, before: Outcome) -> Marginals:
    """What the better of the best layout there and the present one, moved there, gains."""
    moved = moved_outcome(request, before, cluster)
    found = searched_cluster(request, Offer(cluster=cluster, is_hypothetical=True))
    after = moved if found.outcome is None else min(moved, found.outcome, key=lambda one: one.time_s.median)
    return Marginals(found=(Marginal.between(change, before, after),), too_large=_left_out([found]))


def _more_nodes(request: PlanRequest, offer: Offer, chosen: Outcome) -> Marginals:
    """The fewest more nodes with which the run is faster; none where twice the nodes are of no use."""
    searched = []
    for cluster in _larger(offer.cluster):
        searched.append(searched_cluster(request, replace(offer, cluster=cluster)))
        after = searched[-1].outcome
        if after is not None and after.time_s.median < chosen.time_s.median:
            more = cluster.num_nodes - chosen.cluster.num_nodes
            gain = Marginal.between(f"{more} more node{'s' if more > 1 else ''}", chosen, after)
            return Marginals(found=(gain,), too_large=_left_out(searched))
    return Marginals(found=(Marginal(change="1 more node", outcome=None),), too_large=_left_out(searched))


def _left_out(searched: Sequence[SearchedCluster]) -> tuple[str, ...]:
    return tuple(one.too_large for one in searched if one.too_large)


def _larger(cluster: Cluster) -> Iterator[Cluster]:
    nodes = cluster.num_nodes
    for num_nodes in dict.fromkeys((nodes + 1, *(math.ceil(factor * nodes) for factor in _NODE_FACTORS))):
        try:
            yield _named(cluster.resized(num_nodes=num_nodes))
        except InvalidInput:  # its torus has no such size
            continue


def _named(cluster: Cluster) -> Cluster:
    accelerator = cluster.accelerator.name
    return replace(cluster, name=f"{accelerator}:{cluster.num_nodes}x{cluster.accelerators_per_node}")
