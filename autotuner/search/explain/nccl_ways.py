"""Which algorithm and protocol NCCL would take for the all-reduces of a layout, by size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from autotuner.core.choices import ShardLevel
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.units import format_bytes
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import replicate_group, shard_group, tensor_group
from autotuner.costmodel.communication.nccl import Band, bands, wires_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclWays:
    """What NCCL would take among the ranks of one axis, whatever a layout names.

    Attributes:
        axis: ``tensor``, ``shard`` or ``replicate``.
        collective: ``all_reduce``, or ``all_gather`` of shards, whose reduce-scatters go the same way.
        sentence: Without a full stop.
    """

    axis: str
    collective: str
    num_ranks: int
    num_nodes: int
    sentence: str


def nccl_ways(layout: Layout, job: Job) -> tuple[NcclWays, ...]:
    """By axis, of groups of several ranks; none where NCCL does not communicate: on cores and on GPUs of others."""
    return tuple(_ways(layout, job)) if job.cluster.accelerator.kind == "cuda" else ()


def _ways(layout: Layout, job: Job) -> Iterator[NcclWays]:
    x = LayoutColumns.from_layouts([layout])
    if layout.tensor_parallel_degree > 1:
        yield _of("tensor", tensor_group(x, job.cluster), job, gathers=layout.sequence_parallel)
    if layout.shard_level != ShardLevel.NONE and layout.data_parallel_shard_degree > 1:
        yield _of("shard", shard_group(x, job.cluster), job, gathers=True)
    replicas = replicate_group(x, job.cluster)
    if replicas.num_ranks[0] > 1:
        yield _of("replicate", replicas, job, gathers=False)


def _of(axis: str, group: Group, job: Job, *, gathers: bool) -> NcclWays:
    num_ranks, per_node = int(group.num_ranks[0]), int(group.ranks_per_node[0])
    wires = wires_of(num_ranks, per_node, job.cluster)
    found = bands("all_gather" if gathers else "all_reduce", wires)
    said = "gathers and reduce-scatters" if gathers else "all-reduces"
    return NcclWays(
        axis=axis,
        collective="all_gather" if gathers else "all_reduce",
        num_ranks=num_ranks,
        num_nodes=wires.num_nodes,
        sentence=f"among {num_ranks} {axis} ranks NCCL would take {', '.join(_said(found))} for {said}",
    )


def _said(found: tuple[Band, ...]) -> Iterator[str]:
    """Each way with the size up to which it is taken."""
    for band, after in pairwise(found):
        yield f"{band.way} below {format_bytes(after.from_bytes)}"
    yield f"{found[-1].way} above" if len(found) > 1 else f"{found[-1].way} at all sizes"
