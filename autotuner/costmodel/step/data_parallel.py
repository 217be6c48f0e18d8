"""Cost of the data-parallel group's collectives in a step."""

from __future__ import annotations

import numpy as np

from autotuner.core.choices import GradientClip, GradientSync, ShardLevel
from autotuner.core.columns import Floats, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.stages import ONE_STAGE_SCHEDULES
from autotuner.costmodel.communication.collectives import (
    data_all_gather_s,
    data_all_reduce_s,
    data_reduce_scatter_s,
    without_starts,
)
from autotuner.costmodel.communication.contention import ContendingTraffic
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layer_collectives import exposed_s, overlap_share
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_shard_group,
    replicate_group,
    shard_group,
)
from autotuner.costmodel.layer.host import shard_host_s
from autotuner.costmodel.memory.weights import Weights, gradient_bytes, owned_elements
from autotuner.costmodel.shared.low_precision import gathered_share
from autotuner.costmodel.shared.stages import num_micro_batches
from autotuner.costmodel.step.lossy_exchange import lossy_exchange_s
from autotuner.costmodel.step.rank_step import RankWindow

_MATRICES_PER_LAYER = 7
"""Number of matrices in a layer: four of attention and three of a gated feed-forward block. All experts of a layer are
one tensor for each matrix."""


def data_communication_s(x: LayoutColumns, job: Job, window: RankWindow) -> Floats:
    """Return the seconds per step that a rank waits for data-parallel collectives, without their hidden part.

    Weights and gradients travel in the precision in which they are stored. The collectives depend on the sharding:

    * Nothing is sharded: gradients are all-reduced during the backward pass of the last micro-batch.
    * The optimizer is sharded (ZeRO-1): gradients are reduce-scattered during the last backward pass, and new
      parameters are all-gathered once.
    * Gradients are sharded (ZeRO-2): gradients are reduce-scattered during the backward pass of every micro-batch, and
      new parameters are all-gathered once.
    * Parameters are sharded: for every micro-batch, parameters are gathered during the forward pass (and again during
      the backward pass, if the layout reshards them), and gradients are scattered during the backward pass.
    * Parameters are sharded in a pipeline: gradients are scattered once a step. Parameters are gathered for every
      micro-batch if the layout reshards them. Otherwise they are gathered once a step, because parameters that a
      backward pass gathered stay for the next forward pass (``stage.py`` of torch.distributed.pipelining, 2.13).

    If shards have replicas, these all-reduce the scattered gradients, as often as gradients are scattered. The
    gradients of experts travel only among the ranks that hold the same experts. Replicas with a lossy exchange reduce
    nothing during the backward pass: they exchange once a step, after it. Clipping before the reduction needs the norm
    of all gradients, so that the reduction waits for the last gradient, unless each bucket is clipped by itself. If the
    cluster's network is described, all these collectives share links with the traffic of other axes.
    """
    collectives, parts = _num_collectives_and_parts(x, job, window)
    gather_s, reduce_s = _gather_and_reduce_s(x, job, window.held, collectives)
    share = overlap_share(job.cluster.accelerator) * job.stack.overlaps_data_parallel
    forward_s, backward_s = share * window.forward_s, share * window.backward_s
    if x.gradient_clip.any():
        backward_s = np.where(x.gradient_clip == GradientClip.PRE, 0.0, backward_s)
    met = None if window.traffic is None else ContendingTraffic.of(x, job, window.traffic)
    under_forward_s = _under(gather_s, forward_s, parts, met)
    under_backward_s = _under(reduce_s + gather_s * x.reshard_after_forward, backward_s, parts, met)
    reduced_s = _under(reduce_s, backward_s, parts, met)
    m = num_micro_batches(x, job)
    in_pipeline_s = np.where(x.reshard_after_forward, m, 1) * under_forward_s + reduced_s
    full_s = np.select(
        [
            x.shard_level == ShardLevel.OPTIMIZER,
            x.shard_level == ShardLevel.GRADIENTS,
            x.shard_level == ShardLevel.PARAMETERS,
        ],
        [
            reduced_s + gather_s,
            m * under_backward_s + gather_s,
            np.where(x.pipeline_parallel_degree > 1, in_pipeline_s, m * (under_forward_s + under_backward_s)),
        ],
        default=under_backward_s,
    )
    if not x.gradient_sync.any():
        return full_s
    return full_s + lossy_exchange_s(x, job, owned_elements(x, job, window.held))


def _under(wire_s: Floats, window_s: Floats, parts: Floats, met: ContendingTraffic | None) -> Floats:
    """Return the exposed time of collectives during one pass.

    It includes the cost of sharing links with the pass's own traffic.
    """
    alone_s = exposed_s(wire_s, window_s, parts)
    return alone_s if met is None else alone_s + met.added_s(wire_s, window_s)


def early_share(x: LayoutColumns, job: Job, window: RankWindow) -> Floats:
    """Return the share of the gradients' bytes whose reduction may start before the last backward pass ends, 0..1.

    The reduction of every part of the gradients except the last one may start early. The share is 0 in three cases:
    gradients are clipped before they are reduced, which needs the norm of all of them; the gradient exchange is lossy;
    or there is only one data-parallel rank.
    """
    _, parts = _num_collectives_and_parts(x, job, window)
    replicas = x.data_parallel_degree * x.context_parallel_degree
    waits = (x.gradient_clip == GradientClip.PRE) | (x.gradient_sync != GradientSync.FULL) | (replicas == 1)
    return np.where(waits, 0.0, 1 - 1 / parts)


def _num_collectives_and_parts(x: LayoutColumns, job: Job, window: RankWindow) -> tuple[Floats, Floats]:
    """Return the number of a rank's gradient collectives, and of parts of its backward pass after which some start.

    There is one collective per layer and one for the tables; or, if the stack fills buckets and gradients are not
    sharded, one per bucket of the layout's size (arXiv 2006.15704, section 3.2.3: small buckets start early, large ones
    use the link well), which holds at least one matrix. Buckets start when they are full. If a pipeline rank has
    several stages, all buckets of a stage start together after its last backward pass (``trials/step/step.py``).
    """
    by_layer = window.num_layers.astype(np.float64) + 1.0
    if not job.stack.fills_buckets:
        return by_layer, by_layer
    gradients_bytes = x.element_bytes * (window.held.dense + window.held.expert)
    by_matrix = _MATRICES_PER_LAYER * window.num_layers + 1.0
    by_bucket = np.clip(np.ceil(gradients_bytes / x.gradient_bucket_bytes), x.virtual_stages_per_rank, by_matrix)
    by_stage = (x.pipeline_parallel_degree > 1) & ~is_one_of(x.pipeline_schedule, ONE_STAGE_SCHEDULES)
    fills = (x.shard_level == ShardLevel.OPTIMIZER) | (x.shard_level == ShardLevel.NONE)
    collectives = np.where(fills, by_bucket, by_layer)
    return collectives, np.where(fills & by_stage, x.virtual_stages_per_rank, collectives)


def _gather_and_reduce_s(x: LayoutColumns, job: Job, held: Weights, collectives: Floats) -> tuple[Floats, Floats]:
    """Return the wire time to gather a rank's parameters once, and to reduce its gradients once."""
    shard = shard_group(x, job.cluster)
    if job.model.experts is None:
        return _exchange_s(x, job, held.dense / collectives, shard, collectives)
    apart = x.expert_parallel_degree > 1
    dense = held.dense + np.where(apart, 0.0, held.expert)
    gather_s, reduce_s = _exchange_s(x, job, dense / collectives, shard, collectives)
    of_experts = _exchange_s(x, job, held.expert / collectives, expert_shard_group(x, job), collectives)
    return gather_s + np.where(apart, of_experts[0], 0.0), reduce_s + np.where(apart, of_experts[1], 0.0)


def _exchange_s(x: LayoutColumns, job: Job, unit: Floats, shard: Group, collectives: Floats) -> tuple[Floats, Floats]:
    """Return the wire times of units with this number of elements, which the ranks of one kind of group shard."""
    unit_bytes = x.element_bytes * unit
    sharded = x.shard_level != ShardLevel.NONE
    gather_s = np.where(sharded, data_all_gather_s(unit_bytes * gathered_share(x, job), shard, x), 0.0)
    summed_bytes = unit_bytes * gradient_bytes(x, job) / x.element_bytes
    scatter_s = np.where(sharded, data_reduce_scatter_s(summed_bytes, shard, x), 0.0)
    replicas_s = _replicas_s(x, job, summed_bytes / np.where(sharded, shard.num_ranks, 1))
    if job.cluster.accelerator.core is not None:
        by_layer, silent = x.shard_level >= ShardLevel.GRADIENTS, without_starts(shard)
        own_gather_s, own_reduce_s = shard_host_s(shard.num_ranks, job.cluster.accelerator.core)
        gather_s = np.where(by_layer, own_gather_s + data_all_gather_s(unit_bytes, silent, x), gather_s)
        scatter_s = np.where(by_layer, own_reduce_s + data_reduce_scatter_s(summed_bytes, silent, x), scatter_s)
    reduce_s: Floats = collectives * (scatter_s + replicas_s)
    return gather_s * collectives, reduce_s


def _replicas_s(x: LayoutColumns, job: Job, summed_bytes: Floats) -> Floats:
    """Return the wire time to sum the gradients of shards over replicas. With a lossy exchange, sum within a replica.

    Then only the ranks of one replica sum gradients: shards have done so before, or context ranks do so if nothing is
    sharded.
    """
    everybody_s = data_all_reduce_s(summed_bytes, replicate_group(x, job.cluster), x)
    if not x.gradient_sync.any():
        return everybody_s
    apart = (x.shard_level == ShardLevel.NONE) & (x.context_parallel_degree > 1)
    within_s = np.where(apart, data_all_reduce_s(summed_bytes, context_group(x, job.cluster), x), 0.0)
    return np.where(x.gradient_sync == GradientSync.FULL, everybody_s, within_s)
