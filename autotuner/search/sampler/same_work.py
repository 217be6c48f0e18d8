"""Which parts of a layout's step a small trial ran at the size that they have at full size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.layouts.choice import ShardLevel
from autotuner.domain.layouts.layout import LAYOUT_FIELDS, Layout
from autotuner.domain.runs.prediction import StepTime
from autotuner.search.sampler.small_trials import StandIn

__all__ = ["STEP_PARTS", "parts_measured"]

STEP_PARTS = tuple(f.name for f in fields(StepTime))

_SCALED = frozenset(
    {
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
        "expert_parallel_degree",
        "pipeline_parallel_degree",
        "virtual_stages_per_rank",
        "pipeline_schedule",
        "first_stage_less_layers",
        "last_stage_less_layers",
        "shard_level",
        "reshard_after_forward",
        "gradient_bucket_bytes",
        "collective_algorithm",
        "collective_protocol",
        "collective_channels",
    }
)
"""What may differ between a layout and its small trial without changing the work of one micro-batch on one layer."""

_DEPTH = frozenset({"name", "num_layers", "num_linear_layers", "num_windowed_layers", "approximations", "experts"})
"""What of a model may differ without changing the work of a layer; experts are compared by themselves."""


def parts_measured(layout: Layout, job: Job, stand_ins: Iterable[StandIn]) -> frozenset[str]:
    """Parts of ``StepTime`` that at least one of the small trials ran as this layout of the job would."""
    return frozenset(part for one in stand_ins for part in _parts(layout, job, one))


def _parts(layout: Layout, job: Job, small: StandIn) -> Iterator[str]:
    if not _is_same_layer(layout, job, small):
        return
    expert = layout.expert_parallel_degree == small.layout.expert_parallel_degree
    yield from ("attention_s", "pointwise_s", "host_s", "recompute_s", "offload_s")
    if expert or job.model.experts is None:
        yield "matrix_s"
    if not _is_same_links(job, small.job):
        return
    innermost = layout.tensor_parallel_degree
    if _lies_alike(job, small.job, innermost, 1):
        yield "tensor_communication_s"
    if _lies_alike(job, small.job, layout.context_parallel_degree, innermost):
        yield "context_communication_s"
    if expert and _lies_alike(job, small.job, layout.expert_parallel_degree, 1):
        yield "expert_communication_s"
    yield from _of_pipeline(layout, job, small)
    yield from _of_data(layout, job, small)


def _is_same_layer(layout: Layout, job: Job, small: StandIn) -> bool:
    """Whether a micro-batch does the same work on a layer of both, on the same accelerator, by the same software."""
    return (
        [job.cluster.accelerator.name, job.stack, job.workload.seq_len]
        == [small.job.cluster.accelerator.name, small.job.stack, small.job.workload.seq_len]
        and _layers_of(job.model) == _layers_of(small.job.model)
        and _choices(layout) == _choices(small.layout)
    )


def _layers_of(model: TransformerSpec) -> list[Any]:
    shapes = [getattr(model, f.name) for f in fields(model) if f.name not in _DEPTH]
    return [*shapes, model.experts and replace(model.experts, num_dense_layers=0)]


def _choices(layout: Layout) -> list[Any]:
    return [getattr(layout, name) for name in LAYOUT_FIELDS if name not in _SCALED]


def _is_same_links(job: Job, small: Job) -> bool:
    links = (
        [one.cluster.intra_node_link.name, one.cluster.inter_node_link.name, one.cluster.oversubscription]
        for one in (job, small)
    )
    return next(links) == next(links)


def _lies_alike(job: Job, small: Job, group_size: int, stride: int) -> bool:
    """Whether such a group crosses nodes in both jobs or in none."""
    return bool(job.cluster.crosses_nodes(group_size, stride)) == bool(small.cluster.crosses_nodes(group_size, stride))


def _of_pipeline(layout: Layout, job: Job, small: StandIn) -> Iterator[str]:
    """Sends between neighbours, which are the same with fewer ranks; waiting, which is not."""
    ours, theirs = layout, small.layout
    crosses = (
        one_job.cluster.crosses_nodes(one.pipeline_parallel_degree, one.world_size // one.pipeline_parallel_degree)
        for one, one_job in ((ours, job), (theirs, small.job))
    )
    if min(ours.pipeline_parallel_degree, theirs.pipeline_parallel_degree) > 1 and next(crosses) == next(crosses):
        yield "pipeline_communication_s"
    if _schedule(ours, job) == _schedule(theirs, small.job):
        yield "bubble_s"


def _schedule(layout: Layout, job: Job) -> tuple[object, ...]:
    sequences = layout.data_parallel_degree * layout.micro_batch_size
    num_micro_batches = job.workload.global_batch_size // sequences
    stages = layout.pipeline_parallel_degree, layout.virtual_stages_per_rank
    return (layout.pipeline_schedule, *stages, num_micro_batches if stages[0] > 1 else 1)


def _of_data(layout: Layout, job: Job, small: StandIn) -> Iterator[str]:
    ours, theirs = layout, small.layout
    same_shards = (ours.shard_level, ours.data_parallel_shard_degree) == (
        theirs.shard_level,
        theirs.data_parallel_shard_degree,
    )
    if same_shards or {ours.shard_level, theirs.shard_level} == {ShardLevel.NONE}:
        yield "optimizer_s"
    stride = ours.tensor_parallel_degree * ours.context_parallel_degree
    same_ranks = ours.data_parallel_replicate_degree == theirs.data_parallel_replicate_degree
    if same_shards and same_ranks and _lies_alike(job, small.job, ours.data_parallel_degree, stride):
        yield "data_communication_s"
