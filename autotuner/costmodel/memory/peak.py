"""Peak memory of one rank on the fullest pipeline stage.

Bytes per element of a weight, AdamW in mixed precision (arXiv 1710.03740, section 3.1): a 16-bit weight and its 16-bit
gradient (2 + 2), and in the optimizer an fp32 master (4) and two moments (4 or 2 each). In fp32 the weight is its own
master: 4 + 4 and the moments. The peak comes in a backward pass or in the optimizer's step, when activations are gone
but the 16-bit gradients of all that the rank owns are widened to fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from autotuner.costmodel.columns import Floats, Integers, LayoutColumns
from autotuner.costmodel.memory.activations import LayerBytes, kept_bytes, logits_bytes, working_bytes
from autotuner.costmodel.memory.sharding import Sharding, gradient_bytes
from autotuner.costmodel.memory.weights import Weights, weights
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split
from autotuner.costmodel.pipeline.rank_load import RankLoad, fullest_ranks, num_micro_batches
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import OptimizerKernel, Precision, ShardLevel

__all__ = ["MemoryColumns", "RankMemory", "fullest_rank", "memory", "peak_bytes", "rank_memories"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryColumns:
    """``Memory`` for many layouts: bytes by part, on the fullest stage of each.

    The parts are those of the fullest backward pass. What the optimizer's step needs beyond it is in ``buffers_bytes``.
    """

    parameters_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    logits_bytes: Floats
    buffers_bytes: Floats
    allowance_bytes: Floats
    worst_stage: Integers

    @property
    def total_bytes(self) -> Floats:
        """The peak: the sum of all parts."""
        parts: list[Floats] = [getattr(self, f.name) for f in fields(self) if f.name.endswith("_bytes")]
        return reduce(np.add, parts)  # in order, so that a row's total does not depend on how many rows there are


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What a pipeline rank holds, whichever way data-parallel ranks share its weights.

    Attributes:
        rank: Its number in the pipeline, from 0.
        held: Its weights.
        activations_bytes: Saved for its backward passes, and what the current layer works with.
        logits_bytes: What the loss holds.
        received_bytes: Receive buffers of the pipeline.
        joined_bytes: Hidden states gathered from the tensor ranks.
    """

    rank: Integers
    held: Weights
    activations_bytes: Floats
    logits_bytes: Floats
    received_bytes: Floats
    joined_bytes: Floats


def memory(x: LayoutColumns, job: Job) -> MemoryColumns:
    """The peak of each layout, with the pipeline rank that reaches it."""
    return fullest_rank(x, job, rank_memories(x, job, fullest_ranks(x, job)))


def rank_memories(x: LayoutColumns, job: Job, loads: Sequence[RankLoad]) -> list[RankMemory]:
    """What the pipeline ranks hold among which the fullest is found; all depends on ``STEP_FIELDS`` alone."""
    kinds = (False, True) if job.model.num_sparse_layers else (False,)
    layers = {sparse: LayerBytes.of(x, job, sparse=sparse) for sparse in kinds}
    working, logits, received = working_bytes(x, job), logits_bytes(x, job), _received_bytes(x, job)
    joined = _joined_bytes(x, job)
    return [
        RankMemory(
            rank=load.rank,
            held=weights(x, job, load),
            activations_bytes=kept_bytes(x, load, layers) + working,
            logits_bytes=logits * load.has_output,
            received_bytes=received * (2 * x.virtual_stages_per_rank - load.has_input - load.has_output),
            joined_bytes=joined,
        )
        for load in loads
    ]


def fullest_rank(x: LayoutColumns, job: Job, ranks: Sequence[RankMemory]) -> MemoryColumns:
    """The peak of each layout on the fullest of some ranks."""
    sharding = Sharding.of(x, job)
    fullest, *others = (_on_rank(x, job, sharding, rank) for rank in ranks)
    highest_bytes = fullest.total_bytes
    for other in others:
        total_bytes = other.total_bytes
        worse = total_bytes > highest_bytes
        highest_bytes = np.maximum(highest_bytes, total_bytes)
        fullest = MemoryColumns(
            **{f.name: np.where(worse, getattr(other, f.name), getattr(fullest, f.name)) for f in fields(fullest)}
        )
    return fullest


def peak_bytes(x: LayoutColumns, job: Job, ranks: Sequence[RankMemory]) -> Floats:
    """The peak of each layout alone, without its parts."""
    sharding = Sharding.of(x, job)
    return reduce(np.maximum, (_on_rank(x, job, sharding, rank).total_bytes for rank in ranks))


def _on_rank(x: LayoutColumns, job: Job, sharding: Sharding, rank: RankMemory) -> MemoryColumns:
    held = rank.held
    elements, owned = held.dense + held.expert, held.dense / sharding.dense_ranks + held.expert / sharding.expert_ranks
    master_bytes = np.where(x.precision == Precision.FP32, 0.0, 4.0)
    moment_bytes = 4.0 if job.workload.optimizer_state_precision == "fp32" else 2.0
    gradients_bytes = gradient_bytes(x, job) * np.where(sharding.whole_gradients, elements, owned)
    activations, beyond_counted = rank.activations_bytes, _beyond_counted(job)
    moving = _moving_bytes(x, held) + rank.joined_bytes
    gone = activations * (1 + beyond_counted) + rank.logits_bytes + moving + ~sharding.keeps_buckets * gradients_bytes
    beyond_backward = np.maximum(0.0, _stepping_bytes(x, job, owned) - gone)
    return MemoryColumns(
        parameters_bytes=np.where(
            sharding.shards_parameters, x.element_bytes * owned, sharding.parameter_bytes * elements
        ),
        gradients_bytes=gradients_bytes,
        optimizer_bytes=(master_bytes + 2 * moment_bytes) * owned,
        activations_bytes=activations,
        logits_bytes=rank.logits_bytes,
        buffers_bytes=moving + rank.received_bytes + beyond_backward,
        allowance_bytes=_allowance_bytes(job) + beyond_counted * activations,
        worst_stage=rank.rank,
    )


def _beyond_counted(job: Job) -> float:
    """Share of activations held beyond what the formulas count; on a CPU memory means bytes of tensors."""
    return 0.0 if job.cluster.accelerator.kind == "cpu" else job.stack.activation_overhead


def _allowance_bytes(job: Job) -> float:
    return 0.0 if job.cluster.accelerator.kind == "cpu" else float(job.stack.allowance_bytes)


def _moving_bytes(x: LayoutColumns, held: Weights) -> Floats:
    """Gathered parameters, and gradients on their way."""
    # the unit in use and the one fetched ahead, or all of them; a unit's gradient, whole and being scattered
    gathered = np.where(x.reshard_after_forward, 2 * held.largest_unit, held.dense + held.expert)
    weights_moving = np.where(x.shard_level == ShardLevel.PARAMETERS, gathered, 0.0)
    gradients_moving = np.where(x.shard_level >= ShardLevel.GRADIENTS, 2 * held.largest_unit, 0.0)
    total: Floats = x.element_bytes * (weights_moving + gradients_moving)
    return total


def _joined_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Hidden states gathered from the tensor ranks."""
    return np.where(x.sequence_parallel, hidden_bytes(x, job), 0.0)


def _received_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Receive buffers for one end of a stage, which stay from the first step to the last.

    Each stage has one per micro-batch for its input and one for its output's gradient, except where the model begins
    and ends (PipelineStage of torch.distributed.pipelining, torch 2.13, allocates them all before the first forward).
    """
    buffers = hidden_bytes(x, job) / hidden_split(x) * num_micro_batches(x, job)
    return np.where((x.pipeline_parallel_degree > 1) & job.stack.keeps_receive_buffers, buffers, 0.0)


def _stepping_bytes(x: LayoutColumns, job: Job, owned: Floats) -> Floats:
    """What AdamW steps with, of all elements at once: fp32 gradients, unless they are fp32 already; and the roots.

    The roots of the second moments are there with the kernels that visit lists of tensors operation by operation
    (``_multi_tensor_adam`` of torch/optim/adam.py).
    """
    widened = np.where(gradient_bytes(x, job) == 4.0, 0.0, 4.0)
    return (widened + np.where(x.optimizer_kernel == OptimizerKernel.FOREACH, 4.0, 0.0)) * owned
