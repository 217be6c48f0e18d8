"""Peak memory of one rank on the pipeline stage with most memory.

AdamW in mixed precision (arXiv 1710.03740, section 3.1) needs per weight: a 16-bit weight and its 16-bit gradient (2 +
2 bytes), and in the optimizer an fp32 master weight (4) and two moments (4 or 2 each). In fp32 the weight is its own
master: 4 + 4 bytes and the moments.

The peak comes at one of four moments: in the loss, when all logits exist; in the first layer's backward pass after the
loss; at the end of the first micro-batch's backward pass, if no gradients existed before; or in the optimizer's step,
when activations are freed but the 16-bit gradients of all weights that the rank owns are converted to fp32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias, cast

import numpy as np

from autotuner.core.choices import OptimizerKernel, Precision, ShardLevel
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.prediction import Memory
from autotuner.core.stages import follows_signs
from autotuner.costmodel.memory.activations import KeptBytes, LayerBytes, LogitsBytes, kept_bytes, logits_bytes
from autotuner.costmodel.memory.weights import Sharding, Weights, exchanging_bytes, state_bytes, weights
from autotuner.costmodel.shared.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.shared.stages import PartKind, RankLoad, fullest_candidates, num_micro_batches
from autotuner.costmodel.shared.table import where

MemoryColumns: TypeAlias = Memory[Floats, Integers]
"""Bytes by part on the pipeline rank with most memory, at the peak of its passes, for each layout. ``buffers_bytes``
includes the bytes by which the optimizer's step exceeds that peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """The memory of a pipeline rank at several moments of a step, before data-parallel ranks split its weights."""

    rank: Integers
    """Number of the pipeline rank, from 0."""
    held: Weights
    """Weights of the rank."""
    kept: KeptBytes
    """Bytes of activations at several moments."""
    logits: LogitsBytes
    """Bytes of the loss at several moments."""
    received_bytes: Floats
    """Bytes of the pipeline's receive buffers."""
    is_fresh: Booleans
    """True if no backward pass has begun when most micro-batches are in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The memory at one moment of the passes, in addition to memory that is held during the whole step."""

    gradients: Floats
    activations: Floats
    logits: Floats
    moving: Floats

    def total_bytes(self, beyond_counted: float) -> Floats:
        """Return the sum of all parts.

        Activations are increased by the share that the formulas do not count.
        """
        return self.gradients + (1 + beyond_counted) * self.activations + self.logits + self.moving


def memory(x: LayoutColumns, job: Job) -> MemoryColumns:
    """Return the peak memory of each layout, in bytes by part, on the pipeline rank with the highest peak."""
    return fullest_rank(x, job, rank_memories(x, job, fullest_candidates(x, job)))


def rank_memories(x: LayoutColumns, job: Job, loads: Sequence[RankLoad]) -> list[RankMemory]:
    """Return the memory of each given pipeline rank, with whole weights: data-parallel shards are not considered yet.

    The result depends only on the options in ``RANK_STEP_FIELDS``. If sequences have different lengths, all of them
    count as long as the longest one, because some step has a micro-batch of the longest sequences.

    Args:
        x: Layouts, one per row.
        job: The job.
        loads: Pipeline ranks that may have the highest peak.
    """
    job = replace(job, workload=job.workload.of_longest)
    kinds = (kind for kind in PartKind.of(job.model) if kind.is_layer)
    layers = {kind: LayerBytes.of(x, job, sparse=kind is PartKind.SPARSE) for kind in kinds}
    logits, received, m = logits_bytes(x, job), _received_bytes(x, job), num_micro_batches(x, job)
    return [
        RankMemory(
            rank=load.rank,
            held=weights(x, job, load),
            kept=kept_bytes(x, job, load, layers),
            logits=logits * load.has_output,
            received_bytes=received * (2 * x.virtual_stages_per_rank - load.has_input - load.has_output),
            is_fresh=m <= np.ceil(load.micro_batches_in_flight),
        )
        for load in loads
    ]


def fullest_rank(x: LayoutColumns, job: Job, ranks: Sequence[RankMemory]) -> MemoryColumns:
    """Return the peak memory of the fullest of the given pipeline ranks of each layout, in bytes by part."""
    sharding = Sharding.of(x, job)
    fullest, *others = (_on_rank(x, job, sharding, rank) for rank in ranks)
    highest_bytes = fullest.total_bytes
    for other in others:
        total_bytes = other.total_bytes
        fullest = where(total_bytes > highest_bytes, other, fullest)
        highest_bytes = np.maximum(highest_bytes, total_bytes)
    return fullest


def peak_bytes(x: LayoutColumns, job: Job, ranks: Sequence[RankMemory]) -> Floats:
    """Return the peak memory of the fullest of the given pipeline ranks of each layout, in bytes over all parts."""
    sharding = Sharding.of(x, job)
    return reduce(np.maximum, (_on_rank(x, job, sharding, rank).total_bytes for rank in ranks))


def _on_rank(x: LayoutColumns, job: Job, sharding: Sharding, rank: RankMemory) -> MemoryColumns:
    held, beyond_counted = rank.held, _beyond_counted(job)
    elements, owned = held.dense + held.expert, held.dense / sharding.dense_ranks + held.expert / sharding.expert_ranks
    master_bytes = np.where(x.precision == Precision.FP32, 0.0, 4.0)
    gradients = sharding.summed_bytes * np.where(sharding.whole_gradients, elements, owned) * sharding.gradient_copies
    fullest, total_bytes = _fullest_moment(_moments(x, rank, sharding, gradients), beyond_counted)
    stepped = owned * (
        1.0 - x.optimizer_offload_percent / 100.0
    )  # elements that this device updates; the host updates the others
    stepping = _stepping_bytes(x, sharding, stepped) + np.where(
        sharding.keeps_buckets, sharding.gradient_bytes * elements, 0.0
    )
    return Memory(
        parameters_bytes=np.where(
            sharding.shards_parameters, x.element_bytes * owned, sharding.parameter_bytes * elements
        ),
        gradients_bytes=fullest.gradients,
        optimizer_bytes=(master_bytes + state_bytes(x, job)) * stepped,
        activations_bytes=fullest.activations,
        logits_bytes=fullest.logits,
        buffers_bytes=fullest.moving + rank.received_bytes + np.maximum(0.0, stepping - total_bytes),
        allowance_bytes=_allowance_bytes(job) + beyond_counted * fullest.activations,
        worst_rank=rank.rank,
    )


def _moments(x: LayoutColumns, rank: RankMemory, sharding: Sharding, gradients: Floats) -> Iterator[_Moment]:
    """Yield the moments at which memory may peak: the loss, the next backward pass, its end, and the second loss."""
    kept, logits = rank.kept, rank.logits
    # before any backward pass there is at most the memory that gradients are written to
    first = np.where(sharding.has_gradient_memory, gradients / sharding.gradient_copies, 0.0)
    earlier = np.where(rank.is_fresh, first, gradients)
    in_loss, in_layer, in_end = _moving_bytes(x, rank.held, sharding)
    yield _Moment(gradients=earlier, activations=kept.waiting, logits=logits.passing, moving=in_loss)
    yield _Moment(gradients=earlier, activations=kept.waiting + kept.passing, logits=logits.waiting, moving=in_layer)
    yield _Moment(gradients=gradients, activations=kept.ending, logits=np.zeros(len(x)), moving=in_end)
    if logits.second.any():
        yield _Moment(gradients=gradients, activations=kept.one_less, logits=logits.second, moving=in_loss)


def _fullest_moment(moments: Iterable[_Moment], beyond_counted: float) -> tuple[_Moment, Floats]:
    """Return the moment with most memory for each layout, and its bytes."""
    fullest, *others = moments
    highest_bytes = fullest.total_bytes(beyond_counted)
    for other in others:
        total_bytes = other.total_bytes(beyond_counted)
        fullest = where(total_bytes > highest_bytes, other, fullest)
        highest_bytes = np.maximum(highest_bytes, total_bytes)
    return fullest, highest_bytes


def _beyond_counted(job: Job) -> float:
    """Return the share of activations that the formulas do not count. On a CPU, memory means the bytes of tensors."""
    return 0.0 if job.cluster.accelerator.kind == "cpu" else job.stack.activation_overhead


def _allowance_bytes(job: Job) -> float:
    return 0.0 if job.cluster.accelerator.kind == "cpu" else float(job.stack.allowance_bytes)


def _moving_bytes(x: LayoutColumns, held: Weights, sharding: Sharding) -> tuple[Floats, Floats, Floats]:
    """Return the bytes of gathered parameters and unreduced gradients: in the loss, in a backward pass, at its end.

    FSDP gathers layer by layer, each layer ahead of its use, and embedding and output as one more unit, whose gradients
    are complete last. A unit's gradient exists whole, and twice while it is scattered.
    """
    everything, two_layers = held.dense + held.expert, 2 * held.layer
    is_sharded, shards_gradients = sharding.shards_parameters, x.shard_level >= ShardLevel.GRADIENTS
    all_stays = is_sharded & ~x.reshard_after_forward
    all_gathered = np.where(all_stays, everything, 0.0)
    gathered = np.where(is_sharded & x.reshard_after_forward, two_layers + held.tables, all_gathered)
    # in a pipeline, parameters stay gathered after every backward pass except the last
    at_end = np.where(is_sharded & (x.pipeline_parallel_degree > 1), everything, gathered)
    shards = np.where(x.shard_level == ShardLevel.GRADIENTS, everything / sharding.dense_ranks, 0.0)
    scattered = np.where(x.fp32_gradient_reduce, 1.5, 1.0)
    in_layer = np.where(shards_gradients, (1 + scattered) * held.layer, 0.0)
    in_end = np.where(shards_gradients, (1 + scattered) * np.maximum(held.layer, held.tables), 0.0)
    return (
        x.element_bytes * (all_gathered + shards),
        x.element_bytes * (gathered + shards + in_layer),
        x.element_bytes * (at_end + shards + in_end),
    )


def _received_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of receive buffers for one end of a stage, which exist from the first step to the last.

    Each stage has one per micro-batch for its input and one for the gradient of its output, except at the two ends of
    the model (PipelineStage of torch.distributed.pipelining, torch 2.13, allocates them all before the first forward).
    """
    buffers = hidden_bytes(x, job) / hidden_split(x) * num_micro_batches(x, job)
    return np.where((x.pipeline_parallel_degree > 1) & job.stack.keeps_receive_buffers, buffers, 0.0)


def _stepping_bytes(x: LayoutColumns, sharding: Sharding, owned: Floats) -> Floats:
    """Return the temporary bytes of AdamW for all elements: fp32 gradients, unless they are fp32 already, and roots.

    Kernels that process lists of tensors hold the square roots of the second moments (``_multi_tensor_adam`` of
    torch/optim/adam.py). Sign descent holds signs. Temporary bytes of a lossy exchange are counted here, too, although
    most of them are freed before the optimizer's step.
    """
    widened = np.where(sharding.gradient_bytes == 4.0, 0.0, 4.0)
    roots = np.where(x.optimizer_kernel == OptimizerKernel.FOREACH, 4.0, 0.0)
    if not x.gradient_sync.any():
        return (widened + roots) * owned
    return (widened + np.where(follows_signs(cast("Layout", x)), 4.0, roots)) * owned + exchanging_bytes(x, owned)
