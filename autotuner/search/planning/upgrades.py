"""Upgrades: what one more node, twice the network or more memory of the chosen cluster would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotuner.core.cluster import Cluster
from autotuner.core.errors import InvalidInput
from autotuner.core.units import GIGA
from autotuner.search.planning.best_layouts import SearchedCluster, moved_outcome, searched_cluster
from autotuner.search.planning.outcome import Outcome, TrainingRun
from autotuner.search.planning.request import PlanRequest
from autotuner.search.planning.whole_clusters import Offer, changed

_MORE_MEMORY_BYTES = 40 * GIGA

_NODE_FACTORS = (9 / 8, 5 / 4, 3 / 2, 2)
"""Times the nodes that are tried where one more is of no use: sizes that divide batches and layers."""

_S_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What a change of the chosen cluster buys.

    Attributes:
        change: In words: ``1 more node``, ``twice the network``, ``40 GB more memory``.
        num_nodes: Nodes that it adds; gains are of all of them together.
        saved_s: Of the run's time.
        saved_cost: US dollars of the run; below 0 where it costs more.
        mfu: What it adds to the MFU, 0..1.
        price_per_hour: What it adds to the price of an hour of the cluster, in US dollars.
        mfu_per_dollar: ``mfu`` over ``price_per_hour``; null where that is not above 0.
        hours_per_dollar: Hours saved for each dollar that the run costs more; null where it costs no more.
        worth_per_accelerator_hour: Dollars that an accelerator-hour may cost more before the run does; null for nodes.
        predicted: The run with it; null where no layout uses it.
    """

    change: str
    num_nodes: int = 0
    saved_s: float = 0.0
    saved_cost: float = 0.0
    mfu: float = 0.0
    price_per_hour: float = 0.0
    mfu_per_dollar: float | None = None
    hours_per_dollar: float | None = None
    worth_per_accelerator_hour: float | None = None
    predicted: TrainingRun | None = None

    @classmethod
    def between(cls, change: str, before: Outcome, after: Outcome) -> Upgrade:
        """What the second outcome has over the first."""
        num_nodes = after.cluster.num_nodes - before.cluster.num_nodes
        saved_s = before.time_s.median - after.time_s.median
        saved_cost = before.cost.median - after.cost.median
        mfu, price = after.mfu - before.mfu, after.footprint.price_per_hour - before.footprint.price_per_hour
        hours = after.accelerator_hours.median
        return cls(
            change=change,
            num_nodes=num_nodes,
            saved_s=saved_s,
            saved_cost=saved_cost,
            mfu=mfu,
            price_per_hour=price,
            mfu_per_dollar=mfu / price if price > 0 else None,
            hours_per_dollar=saved_s / _S_PER_HOUR / -saved_cost if saved_cost < 0 else None,
            worth_per_accelerator_hour=None
            if num_nodes
            else max(0.0, saved_cost / hours + price / after.cluster.world_size),
            predicted=TrainingRun.of(after),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrades:
    """Changes of the chosen cluster, and which of their clusters have too many layouts to be looked through.

    Attributes:
        too_large: A sentence without a full stop for each of these.
    """

    found: tuple[Upgrade, ...]
    too_large: tuple[str, ...] = ()


def upgrades(request: PlanRequest, offer: Offer, chosen: Outcome) -> Upgrades:
    """What each change of the chosen cluster buys."""
    cluster = chosen.cluster
    faster = changed(cluster, request.change_prices, network_factor=2.0)
    larger = changed(cluster, request.change_prices, extra_bytes=_MORE_MEMORY_BYTES)
    found = [_more_nodes(request, offer, chosen)]
    if cluster.num_nodes > 1:
        found.append(_changed(request, faster, "twice the network", chosen))
    found.append(_changed(request, larger, "40 GB more memory", chosen))
    return Upgrades(
        found=tuple(one for each in found for one in each.found),
        too_large=tuple(sentence for each in found for sentence in each.too_large),
    )


def _changed(request: PlanRequest, cluster: Cluster, change: str, before: Outcome) -> Upgrades:
    """What the better of the best layout there and the present one, moved there, gains."""
    moved = moved_outcome(request, before, cluster)
    found = searched_cluster(request, Offer(cluster=cluster, is_hypothetical=True))
    after = moved if found.outcome is None else min(moved, found.outcome, key=lambda one: one.time_s.median)
    return Upgrades(found=(Upgrade.between(change, before, after),), too_large=_left_out([found]))


def _more_nodes(request: PlanRequest, offer: Offer, chosen: Outcome) -> Upgrades:
    """The fewest more nodes with which the run is faster; none where twice the nodes are of no use."""
    searched = []
    for cluster in _larger(offer.cluster):
        searched.append(searched_cluster(request, replace(offer, cluster=cluster)))
        after = searched[-1].outcome
        if after is not None and after.time_s.median < chosen.time_s.median:
            more = cluster.num_nodes - chosen.cluster.num_nodes
            gain = Upgrade.between(f"{more} more node{'s' if more > 1 else ''}", chosen, after)
            return Upgrades(found=(gain,), too_large=_left_out(searched))
    return Upgrades(found=(Upgrade(change="1 more node"),), too_large=_left_out(searched))


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
