"""The ways in which replicas of a layout could share what they learnt: fully, with whatever is sharded, or lossily."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotuner.core.choices import GradientClip, GradientSync, ShardLevel
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import reasons
from autotuner.core.value import divisors
from autotuner.search.explain.arranging import arranged

_LEVELS: Mapping[ShardLevel, str] = {
    ShardLevel.NONE: "replicas",
    ShardLevel.OPTIMIZER: "ZeRO-1",
    ShardLevel.PARAMETERS: "FSDP",
}
"""Ways that differ in what goes over the wire, under the names that people know them by."""

_HSDP = "HSDP"

_LOSSY = (GradientSync.DEMO, GradientSync.RANDOM, GradientSync.DILOCO)
"""Striding is left out: it sends what random does."""


def exchange_ways(layout: Layout, job: Job) -> dict[str, Layout]:
    """Legal layouts by name, which differ from the given one in shards and in what replicas exchange alone.

    Full exchanges first: what the layout shards, and other levels. Lossy ones keep the layout's replicas, or make one
    of each node where it has none; details are the layout's own where it has that exchange, else the defaults.
    """
    full = arranged(replace(layout, gradient_sync=GradientSync.FULL), job)
    ways = dict(_full_ways(full, job)) | dict(_lossy_ways(layout, full, job))
    return {name: way for name, way in ways.items() if not reasons(way, job)}


def _full_ways(full: Layout, job: Job) -> Iterator[tuple[str, Layout]]:
    data = full.data_parallel_degree
    for level, name in _LEVELS.items():
        yield name, _sharded(full, level, 1 if level == ShardLevel.NONE else data)
    if (shard := _ranks_of_node(full, job)) not in (1, data):
        yield _HSDP, _sharded(full, ShardLevel.PARAMETERS, shard)
    yield _named(full), full


def _named(full: Layout) -> str:
    """What a layout's own sharding is called; groups of shards that are replicas of each other are HSDP."""
    if full.data_parallel_replicate_degree > 1 and full.shard_level == ShardLevel.PARAMETERS:
        return _HSDP
    if full.data_parallel_replicate_degree > 1 and full.shard_level != ShardLevel.NONE:
        return f"{full.shard_level} sharded in groups"
    return _LEVELS.get(full.shard_level, f"{full.shard_level} sharded")


def _lossy_ways(layout: Layout, full: Layout, job: Job) -> Iterator[tuple[str, Layout]]:
    base = replace(full, gradient_clip=GradientClip.POST)  # each replica clips its own, whatever is asked for
    if base.data_parallel_replicate_degree == 1:
        base = _sharded(base, ShardLevel.PARAMETERS, _ranks_of_node(base, job))
    for sync in _LOSSY:
        own = layout if layout.gradient_sync == sync else Layout()
        details = {name: getattr(own, name) for name, one in OPTIONS.items() if one.qualifies == "gradient_sync"}
        yield str(sync), replace(base, gradient_sync=sync, **details)


def _sharded(layout: Layout, level: ShardLevel, shard: int) -> Layout:
    level = level if shard > 1 else ShardLevel.NONE
    return replace(
        layout,
        shard_level=level,
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=layout.data_parallel_degree // shard,
        reshard_after_forward=layout.reshard_after_forward and level == ShardLevel.PARAMETERS,
    )


def _ranks_of_node(layout: Layout, job: Job) -> int:
    """The most data-parallel ranks that shard inside a node."""
    room = job.cluster.accelerators_per_domain // (layout.tensor_parallel_degree * layout.context_parallel_degree)
    return max(count for count in divisors(layout.data_parallel_degree) if count <= max(1, room))
