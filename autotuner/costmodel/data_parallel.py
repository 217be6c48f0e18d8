"""What the collectives of the data-parallel group cost a step."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.groups import replicate_group, shard_group
from autotuner.costmodel.overlap import exposed_s, overlap_share
from autotuner.costmodel.pipeline import num_micro_batches
from autotuner.costmodel.rank_step import RankStep
from autotuner.costmodel.sharding import communicates_once, gradient_bytes
from autotuner.costmodel.weights import Weights
from autotuner.domain.choice import ShardLevel
from autotuner.domain.legality import Job
from autotuner.domain.rule import any_of
from autotuner.domain.stages import ONE_STAGE_SCHEDULES

__all__ = ["data_communication_s"]


def data_communication_s(x: LayoutColumns, job: Job, rank: RankStep) -> Floats:
    """Exposed seconds of the data-parallel group in one step; weights and gradients travel as they are stored.

    * nothing sharded: all-reduces under the last micro-batch's backward;
    * optimizer sharded (ZeRO-1): one reduce-scatter under the last backward, one all-gather of the new parameters;
    * gradients sharded (ZeRO-2): a reduce-scatter under every micro-batch's backward, then the same all-gather;
    * parameters sharded: for every micro-batch gathered under the forward (under the backward again, if resharded) and
      scattered under the backward; or both once a step (``communicates_once``).

    Replicas of shards all-reduce what was scattered, as often as it is scattered. Experts, whose group is smaller by
    the expert ranks, are sent as if over the whole shard group.
    """
    parts = _num_parts(x, job, rank)
    gather_s, reduce_s = _gather_and_reduce_s(x, job, rank.held, parts)
    share = overlap_share(job.cluster.accelerator) * job.stack.overlaps_data_parallel
    forward_s, backward_s = share * rank.forward_s, share * rank.backward_s
    under_forward_s = exposed_s(gather_s, forward_s, parts)
    under_backward_s = exposed_s(reduce_s + gather_s * x.reshard_after_forward, backward_s, parts)
    m = num_micro_batches(x, job)
    return np.select(
        [
            x.shard_level == ShardLevel.OPTIMIZER,
            x.shard_level == ShardLevel.GRADIENTS,
            x.shard_level == ShardLevel.PARAMETERS,
        ],
        [
            exposed_s(reduce_s, backward_s, parts) + gather_s,
            m * under_backward_s + gather_s,
            np.where(communicates_once(x), 1, m) * (under_forward_s + under_backward_s),
        ],
        default=under_backward_s,
    )


def _num_parts(x: LayoutColumns, job: Job, rank: RankStep) -> Floats:
    """Collectives that a rank's gradients take: one per layer and one for the tables, or one per bucket.

    Where the stack fills buckets, replicas without shards do: of a chosen size with one stage per rank, of a stage each
    with several (arXiv 2006.15704, section 3.2.3: small buckets start early, large ones use the link well).
    """
    by_layer = rank.num_layers.astype(np.float64) + 1.0
    if not job.stack.fills_buckets:
        return by_layer
    gradients_bytes = gradient_bytes(x, job) * (rank.held.dense + rank.held.expert)
    buckets = np.where(
        any_of(x.pipeline_schedule, ONE_STAGE_SCHEDULES),
        np.ceil(gradients_bytes / x.gradient_bucket_bytes),
        x.virtual_stages_per_rank,
    )
    return np.where(x.shard_level == ShardLevel.NONE, buckets, by_layer)


def _gather_and_reduce_s(x: LayoutColumns, job: Job, held: Weights, parts: Floats) -> tuple[Floats, Floats]:
    """Wire time to gather a rank's parameters once, and to reduce its gradients once, in so many parts."""
    unit_bytes = x.element_bytes * (held.dense + held.expert) / parts
    shard, replicate = shard_group(x, job.cluster), replicate_group(x, job.cluster)
    sharded = x.shard_level != ShardLevel.NONE
    gather_s = np.where(sharded, all_gather_s(unit_bytes, shard), 0.0)
    summed_bytes = unit_bytes * gradient_bytes(x, job) / x.element_bytes
    scatter_s = np.where(sharded, reduce_scatter_s(summed_bytes, shard), 0.0)
    replicas_s = all_reduce_s(summed_bytes / np.where(sharded, shard.num_ranks, 1), replicate)
    reduce_s: Floats = parts * (scatter_s + replicas_s)
    return gather_s * parts, reduce_s
