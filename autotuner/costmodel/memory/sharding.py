"""Sharding: how data-parallel ranks share what belongs to the weights, by level (arXiv 1910.02054, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.core.choices import ShardLevel
from autotuner.core.columns import Booleans, Floats, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.stages import ONE_STAGE_SCHEDULES
from autotuner.costmodel.memory.weights import Weights, expert_split
from autotuner.costmodel.narrow import parameter_bytes
from autotuner.costmodel.pipeline.rank_load import num_micro_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How data-parallel ranks share the weights of a layout, on every pipeline rank alike.

    Attributes:
        dense_ranks: Ranks that share one copy of what the optimizer has of the dense weights.
        expert_ranks: Ranks that share one copy of what the optimizer has of the experts.
        shards_parameters: Weights are gathered for use.
        parameter_bytes: Of a weight on a rank that holds it whole.
        gradient_bytes: Of a gradient that is reduced.
        summed_bytes: Of a gradient that is summed over micro-batches.
        whole_gradients: A rank sums the gradients of all its weights, not of those that it owns.
        keeps_buckets: Gradients stay through the optimizer's step.
        has_gradient_memory: Gradients have memory before any backward pass.
        gradient_copies: How often a rank holds its gradients: twice where DistributedDataParallel has buckets for them
            and sums up those of micro-batches before the last outside of these (``no_sync``, torch 2.13).
    """

    dense_ranks: Floats
    expert_ranks: Floats
    shards_parameters: Booleans
    parameter_bytes: Floats
    gradient_bytes: Floats
    summed_bytes: Floats
    whole_gradients: Booleans
    keeps_buckets: Booleans
    has_gradient_memory: Booleans
    gradient_copies: Floats

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> Sharding:
        """One row per layout."""
        dense_ranks, expert_ranks = _shard_ranks(x, job)
        several = num_micro_batches(x, job) > 1
        sums_whole, in_buckets = _sums_whole(x) & several, _in_buckets(x, job)
        return cls(
            dense_ranks=dense_ranks,
            expert_ranks=expert_ranks,
            shards_parameters=x.shard_level == ShardLevel.PARAMETERS,
            parameter_bytes=parameter_bytes(x, job),
            gradient_bytes=gradient_bytes(x, job),
            summed_bytes=summed_bytes(x, job),
            whole_gradients=(x.shard_level <= ShardLevel.OPTIMIZER) | sums_whole,
            keeps_buckets=_keeps_buckets(x),
            has_gradient_memory=in_buckets | job.stack.allocates_gradients,
            gradient_copies=np.where(in_buckets & several, 2.0, 1.0),
        )


def owned_elements(x: LayoutColumns, job: Job, held: Weights) -> Floats:
    """Elements that a rank's optimizer updates."""
    dense_ranks, expert_ranks = _shard_ranks(x, job)
    owned: Floats = held.dense / dense_ranks + held.expert / expert_ranks
    return owned


def communicates_once(x: LayoutColumns) -> Booleans:
    """Whether sharded parameters are gathered, and their gradients scattered, once a step and not every micro-batch.

    So it is in a pipeline that does not reshard, as torch.distributed.pipelining runs FSDP2: what is gathered stays,
    and whole gradients are summed until the last micro-batch.
    """
    once: Booleans = (
        (x.shard_level == ShardLevel.PARAMETERS) & (x.pipeline_parallel_degree > 1) & ~x.reshard_after_forward
    )
    return once


def _sums_whole(x: LayoutColumns) -> Booleans:
    """Whether gradients are summed whole until the last micro-batch although parameters are sharded.

    So it is in a pipeline, whether it reshards or not (``backward_maybe_with_nosync`` of
    torch/distributed/pipelining/stage.py, torch 2.13).
    """
    sums: Booleans = (x.shard_level == ShardLevel.PARAMETERS) & (x.pipeline_parallel_degree > 1)
    return sums


def gradient_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Bytes of an accumulated gradient, and of the one that is reduced."""
    return np.where(x.fp32_gradient_reduce | job.stack.sums_gradients_in_fp32, 4.0, x.element_bytes)


def summed_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Bytes of a gradient that is summed over micro-batches.

    What the trial job is to reduce in fp32 it widens on the way, but for the whole gradients that FSDP sums before
    (``unsharded_accumulated_grad`` of torch/distributed/fsdp, torch 2.13).
    """
    on_the_way = job.stack.fills_buckets & (not job.stack.sums_gradients_in_fp32) & ~_sums_whole(x)
    return np.where(on_the_way, x.element_bytes, gradient_bytes(x, job))


def _shard_ranks(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Ranks that share one copy of the dense weights, and of the experts; the expert ranks were taken from them."""
    sharded = x.shard_level != ShardLevel.NONE
    dense = np.where(sharded, x.data_parallel_shard_degree * x.context_parallel_degree, 1.0)
    if job.model.experts is None:
        return dense, dense
    expert = np.maximum(1.0, np.where(sharded, dense * x.tensor_parallel_degree / expert_split(x, job), 1.0))
    if job.stack.shards_whole_experts:
        whole = job.model.experts.num_experts / np.ceil(job.model.experts.num_experts / expert)  # of the fullest rank
        takes_whole = (x.expert_parallel_degree == 1) & (x.shard_level >= ShardLevel.GRADIENTS)
        expert = np.where(takes_whole, whole, expert)
    return dense, expert


def _in_buckets(x: LayoutColumns, job: Job) -> Booleans:
    """Whether DistributedDataParallel reduces the gradients; it knows one stage of a pipeline rank."""
    replicas = (x.shard_level == ShardLevel.NONE) & (x.data_parallel_degree * x.context_parallel_degree > 1)
    one_stage = (x.pipeline_parallel_degree == 1) | is_one_of(x.pipeline_schedule, ONE_STAGE_SCHEDULES)
    in_buckets: Booleans = replicas & one_stage & job.stack.fills_buckets
    return in_buckets


def _keeps_buckets(x: LayoutColumns) -> Booleans:
    """Whether gradients stay through the optimizer's step, as views of the buckets that replicas reduce.

    Others are forgotten one by one as they are widened. DistributedDataParallel, ``gradient_as_bucket_view``.
    """
    keeps: Booleans = (x.shard_level <= ShardLevel.OPTIMIZER) & (x.data_parallel_degree * x.context_parallel_degree > 1)
    return keeps
