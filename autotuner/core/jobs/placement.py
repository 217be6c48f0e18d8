"""Which rank of the job holds which place of a layout's grid, and what lies between neighbouring stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.link_health import LinkEnds
from autotuner.core.layouts.choice import RankOrder, RankPlacement
from autotuner.core.layouts.layout import Layout

__all__ = ["Place", "node_of", "place_of", "places", "rank_at", "stage_links"]


class Place(NamedTuple):
    """Where a rank lies on the grid; shard ranks and context ranks in one, the context ranks innermost."""

    stage: int
    replica: int
    shard: int
    tensor: int


def rank_at(layout: Layout, place: Place) -> int:
    """The number of the rank that holds a place, by the layout's ``rank_order`` and ``stage_rotation``."""
    shards = layout.data_parallel_shard_degree * layout.context_parallel_degree
    stages, replicas = layout.pipeline_parallel_degree, layout.data_parallel_replicate_degree
    stage = (place.stage + layout.stage_rotation) % stages
    if layout.rank_order == RankOrder.REPLICAS_OUTERMOST:
        outer = place.replica * stages + stage
    else:
        outer = stage * replicas + place.replica
    return (outer * shards + place.shard) * layout.tensor_parallel_degree + place.tensor


def place_of(layout: Layout, rank: int) -> Place:
    """The place that a rank holds."""
    outer, tensor = divmod(rank, layout.tensor_parallel_degree)
    outer, shard = divmod(outer, layout.data_parallel_shard_degree * layout.context_parallel_degree)
    stages, replicas = layout.pipeline_parallel_degree, layout.data_parallel_replicate_degree
    if layout.rank_order == RankOrder.REPLICAS_OUTERMOST:
        replica, stage = divmod(outer, stages)
    else:
        stage, replica = divmod(outer, replicas)
    return Place((stage - layout.stage_rotation) % stages, replica, shard, tensor)


def node_of(layout: Layout, cluster: Cluster, rank: int) -> int:
    """The node that a rank lies on, by the layout's ``rank_placement``."""
    if layout.rank_placement == RankPlacement.CYCLIC:
        return rank % cluster.num_nodes
    return rank // cluster.accelerators_per_node


def places(layout: Layout) -> Iterator[Place]:
    """Every place, stage by stage."""
    for stage in range(layout.pipeline_parallel_degree):
        for replica in range(layout.data_parallel_replicate_degree):
            for shard in range(layout.data_parallel_shard_degree * layout.context_parallel_degree):
                for tensor in range(layout.tensor_parallel_degree):
                    yield Place(stage, replica, shard, tensor)


def stage_links(layout: Layout, cluster: Cluster, stage: int) -> frozenset[LinkEnds]:
    """The links that a stage's ranks send to the next stage over; empty where these lie together."""
    found = set()
    for place in places(layout):
        if place.stage == stage:
            one = _link_end(layout, cluster, place)
            other = _link_end(layout, cluster, place._replace(stage=stage + 1))
            if one != other:
                found.add((min(one, other), max(one, other)))
    return frozenset(found)


def _link_end(layout: Layout, cluster: Cluster, place: Place) -> int:
    rank = rank_at(layout, place)
    return node_of(layout, cluster, rank) if cluster.num_nodes > 1 else cluster.link_end(rank)
