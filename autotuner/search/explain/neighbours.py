"""The layouts one step away from a layout: one choice taken to its next value, or a factor moved between degrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

from autotuner.domain.check import divisors
from autotuner.domain.choice import ContextExchange, OptimizerKernel, PipelineSchedule, Recompute, ShardLevel
from autotuner.domain.layout import DEFAULT_BUCKET_BYTES, Layout
from autotuner.domain.legality import Job
from autotuner.domain.stages import V_SCHEDULES

__all__ = ["neighbours"]

_TRADED = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
)
"""Degrees whose product is the number of ranks: one can only grow while another shrinks."""


def neighbours(layout: Layout, job: Job) -> tuple[Layout, ...]:
    """Every layout one step away, legal or not, each once.

    A step that would say nothing is left out: schedules of one pipeline rank, sequence parallelism over one tensor
    rank, kernels that the accelerator lacks. Number formats stay, those of products, their scales and the sums of
    gradients: they change the mathematics.
    """
    steps = (*_batches(layout), *_trades(layout), *_experts(layout, job), *_schedules(layout, job))
    steps += (*_shardings(layout), *_choices(layout, job), *_ends(layout), *_recomputing(layout))
    steps += (*_communication(layout, job), *_implementation(layout, job))
    return tuple(step for step in dict.fromkeys(steps) if step != layout)


def _batches(layout: Layout) -> Iterator[Layout]:
    yield replace(layout, micro_batch_size=2 * layout.micro_batch_size)
    if layout.micro_batch_size % 2 == 0:
        yield replace(layout, micro_batch_size=layout.micro_batch_size // 2)


def _trades(layout: Layout) -> Iterator[Layout]:
    """A factor of 2 moved from one degree to another."""
    for source, target in permutations(_TRADED, 2):
        if getattr(layout, source) % 2 == 0 and _may_grow(layout, target):
            degrees = {source: getattr(layout, source) // 2, target: getattr(layout, target) * 2}
            yield _consistent(layout, **degrees)


def _experts(layout: Layout, job: Job) -> Iterator[Layout]:
    """Twice or half the expert ranks; they are borrowed from the others, so no other degree moves."""
    if job.model.experts is None:
        return
    yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree * 2)
    if layout.expert_parallel_degree % 2 == 0:
        yield replace(layout, expert_parallel_degree=layout.expert_parallel_degree // 2)


def _may_grow(layout: Layout, degree: str) -> bool:
    """Replicas that are not sharded stay so, and replicas that are all sharded stay that."""
    if degree == "data_parallel_shard_degree":
        return layout.shard_level != ShardLevel.NONE
    if degree == "data_parallel_replicate_degree":
        return layout.shard_level == ShardLevel.NONE or layout.data_parallel_replicate_degree > 1
    return True


def _consistent(layout: Layout, **changes: Any) -> Layout:
    """The layout with these fields, and without what one rank of a kind cannot have."""
    moved = replace(layout, **changes)
    if moved.tensor_parallel_degree == 1:
        moved = replace(moved, sequence_parallel=False, loss_parallel=True)
    if not moved.sequence_parallel:
        moved = replace(moved, async_tensor_parallel=False)
    if moved.context_parallel_degree == 1:
        moved = replace(moved, context_exchange=ContextExchange.RING)
    if moved.pipeline_parallel_degree == 1:
        moved = replace(
            moved,
            pipeline_schedule=PipelineSchedule.ONE_F_ONE_B,
            virtual_stages_per_rank=1,
            first_stage_less_layers=0,
            last_stage_less_layers=0,
        )
    if moved.data_parallel_shard_degree == 1:
        moved = replace(moved, shard_level=ShardLevel.NONE, reshard_after_forward=False)
    if not _fills_buckets(moved):
        moved = replace(moved, gradient_bucket_bytes=DEFAULT_BUCKET_BYTES)
    return moved


def _fills_buckets(layout: Layout) -> bool:
    whole_gradients = layout.shard_level in (ShardLevel.NONE, ShardLevel.OPTIMIZER)
    return whole_gradients and layout.data_parallel_degree * layout.context_parallel_degree > 1


def _schedules(layout: Layout, job: Job) -> Iterator[Layout]:
    if layout.pipeline_parallel_degree == 1:
        return
    counts = divisors(max(1, job.model.num_layers // layout.pipeline_parallel_degree))
    least = {PipelineSchedule.INTERLEAVED_1F1B: (*counts[1:2], 2)[0], **dict.fromkeys(V_SCHEDULES, 2)}
    for schedule in PipelineSchedule:
        if schedule != layout.pipeline_schedule:
            stages = least.get(schedule, 1)
            yield _consistent(layout, pipeline_schedule=schedule, virtual_stages_per_rank=stages)
    if layout.pipeline_schedule == PipelineSchedule.INTERLEAVED_1F1B:
        fewer = [count for count in counts if 1 < count < layout.virtual_stages_per_rank]
        more = [count for count in counts if count > layout.virtual_stages_per_rank]
        for count in (*fewer[-1:], *more[:1]):
            yield replace(layout, virtual_stages_per_rank=count)


def _shardings(layout: Layout) -> Iterator[Layout]:
    """The same replicas, sharded otherwise; a group that was split inside nodes keeps its split where it can."""
    data = layout.data_parallel_degree
    if data == 1:
        return
    shard = layout.data_parallel_shard_degree if layout.data_parallel_shard_degree > 1 else data
    for level in ShardLevel:
        if level == layout.shard_level:
            continue
        degree = 1 if level == ShardLevel.NONE else shard
        yield _consistent(
            layout,
            shard_level=level,
            data_parallel_shard_degree=degree,
            data_parallel_replicate_degree=data // degree,
            reshard_after_forward=layout.reshard_after_forward and level == ShardLevel.PARAMETERS,
        )
    if layout.shard_level == ShardLevel.PARAMETERS:
        yield replace(layout, reshard_after_forward=not layout.reshard_after_forward)


def _choices(layout: Layout, job: Job) -> Iterator[Layout]:
    for recompute in Recompute:
        every = 1 if recompute == Recompute.NONE else layout.recompute_every
        yield replace(layout, recompute=recompute, recompute_every=every)
    if layout.tensor_parallel_degree > 1:
        yield _consistent(replace(layout, sequence_parallel=not layout.sequence_parallel))
    for kernel in job.cluster.accelerator.attention_kernels:
        yield replace(layout, attention_kernel=kernel)
    yield replace(layout, fused_norm=not layout.fused_norm)


def _ends(layout: Layout) -> Iterator[Layout]:
    """A layer more or less on the first stage, which has the embedding, and on the last, which has the vocabulary."""
    if layout.pipeline_parallel_degree == 1:
        return
    first, last = layout.first_stage_less_layers, layout.last_stage_less_layers
    for less in (first - 1, first + 1):
        if less >= 0:
            yield replace(layout, first_stage_less_layers=less)
    for less in (last - 1, last + 1):
        if less >= 0:
            yield replace(layout, last_stage_less_layers=less)


def _recomputing(layout: Layout) -> Iterator[Layout]:
    """Recomputation on half or twice as many layers."""
    if layout.recompute == Recompute.NONE:
        return
    yield replace(layout, recompute_every=2 * layout.recompute_every)
    if layout.recompute_every % 2 == 0:
        yield replace(layout, recompute_every=layout.recompute_every // 2)


def _communication(layout: Layout, job: Job) -> Iterator[Layout]:
    """Other ways to gather, exchange and reduce."""
    if layout.tensor_parallel_degree > 1:
        yield replace(layout, loss_parallel=not layout.loss_parallel)
    if layout.sequence_parallel and layout.compiled and job.cluster.accelerator.kind == "cuda":
        yield replace(layout, async_tensor_parallel=not layout.async_tensor_parallel)
    if layout.context_parallel_degree > 1:
        for way in ContextExchange:
            yield replace(layout, context_exchange=way)
    if _fills_buckets(layout):
        yield replace(layout, gradient_bucket_bytes=2 * layout.gradient_bucket_bytes)
        yield replace(layout, gradient_bucket_bytes=max(1, layout.gradient_bucket_bytes // 2))


def _implementation(layout: Layout, job: Job) -> Iterator[Layout]:
    """The same mathematics by other kernels or in other memory."""
    yield replace(layout, compiled=not layout.compiled, async_tensor_parallel=False)
    for kernel in OptimizerKernel:
        yield replace(layout, optimizer_kernel=kernel)
    if job.cluster.accelerator.kind != "cpu":
        yield replace(layout, offload_activations=not layout.offload_activations)
