"""Peak memory of one rank on the fullest pipeline stage.

Bytes per element of a weight, AdamW in mixed precision (arXiv 1710.03740, section 3.1): a 16-bit weight and its 16-bit
gradient (2 + 2), and in the optimizer an fp32 master (4) and two moments (4 or 2 each). In fp32 the weight is its own
master: 4 + 4 and the moments. The peak comes in a backward pass or in the optimizer's step, when activations are gone
but the 16-bit gradients of all that the rank owns are widened to fp32.

Sharding levels after arXiv 1910.02054, section 5; activations after arXiv 2205.05198, section 4, generalised to grouped
queries, gated feed-forward blocks, models without dropout, and kernels that keep no scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.costmodel.compute import logits_split, tokens_per_pass
from autotuner.costmodel.pipeline import RankLoad, fullest_ranks, num_micro_batches
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.domain.legality import Job
from autotuner.domain.model import TransformerSpec

__all__ = [
    "MemoryColumns",
    "RankMemory",
    "Weights",
    "communicates_once",
    "fullest_rank",
    "gradient_bytes",
    "memory",
    "owned_elements",
    "rank_memories",
    "weights",
]


GATHERED_COPIES = 2.0
"""Further fp32 copies of the logits where tensor ranks gather them: the parts, and the whole that they are joined to.

With it, one share of logits explains the out-of-memory rows of arXiv 2311.05610 with and without tensor ranks.
"""


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
class Weights:
    """Elements of a rank's weights before data-parallel sharding.

    Attributes:
        dense: Split over tensor ranks and stages only.
        expert: Routed experts; split over expert ranks, or over tensor ranks where there are none.
        largest_unit: The largest piece that is gathered at once: a layer, or a vocabulary table.
    """

    dense: Floats
    expert: Floats
    largest_unit: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """What a pipeline rank holds, whichever way data-parallel ranks share its weights.

    Attributes:
        rank: Its place in the pipeline, from 0.
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
    return fullest_rank(x, job, rank_memories(x, job))


def rank_memories(x: LayoutColumns, job: Job) -> list[RankMemory]:
    """The ranks among which the fullest is found; they depend on ``rank_step.STEP_FIELDS`` alone."""
    layers = {sparse: _layer_saved_bytes(x, job, sparse=sparse) for sparse in _kinds(job.model)}
    working, logits, received = _working_bytes(x, job), _logits_bytes(x, job), _received_bytes(x, job)
    joined = _joined_bytes(x, job)
    return [
        RankMemory(
            rank=load.rank,
            held=weights(x, job, load),
            activations_bytes=_kept_bytes(x, job, load, layers) + working,
            logits_bytes=logits * load.has_output,
            received_bytes=received * (2 * x.virtual_stages_per_rank - load.has_input - load.has_output),
            joined_bytes=joined,
        )
        for load in fullest_ranks(x, job)
    ]


def fullest_rank(x: LayoutColumns, job: Job, ranks: Sequence[RankMemory]) -> MemoryColumns:
    """The peak of each layout on the fullest of some ranks."""
    sharing = _Sharing.of(x, job)
    fullest, *others = (_on_rank(x, job, sharing, rank) for rank in ranks)
    for other in others:
        worse = other.total_bytes > fullest.total_bytes
        fullest = MemoryColumns(
            **{f.name: np.where(worse, getattr(other, f.name), getattr(fullest, f.name)) for f in fields(fullest)}
        )
    return fullest


def weights(x: LayoutColumns, job: Job, load: RankLoad) -> Weights:
    """What the rank holds of the model."""
    model, tensor = job.model, x.tensor_parallel_degree
    dense_layer, sparse_layer = _layer_elements(model)
    tables = load.has_input * (model.embedding_parameters + model.num_learned_positions * model.hidden_size)
    shares_table = load.has_input & load.has_output & model.tied_embeddings
    tables = tables + (load.has_output & ~shares_table) * model.embedding_parameters
    dense = load.num_dense_layers * dense_layer + load.num_sparse_layers * sparse_layer + tables
    expert_layer = _expert_layer_elements(model) / _expert_split(x)
    largest_layer = np.maximum(dense_layer, (sparse_layer if model.experts else 0)) / tensor
    holds_table = load.has_input | load.has_output
    return Weights(
        dense=dense / tensor,
        expert=load.num_sparse_layers * expert_layer,
        largest_unit=np.maximum(largest_layer + expert_layer, holds_table * model.embedding_parameters / tensor),
    )


def owned_elements(x: LayoutColumns, held: Weights) -> Floats:
    """Elements that a rank's optimizer updates."""
    dense_ranks, expert_ranks = _shard_ranks(x)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharing:
    """How data-parallel ranks share weights; the same for every pipeline rank of a layout.

    Attributes:
        dense_ranks: Ranks that share one copy of what the optimizer has of the dense weights.
        expert_ranks: The same of the experts.
        shards_parameters: Weights are gathered for use.
        whole_gradients: A rank sums the gradients of all its weights, not of those that it owns.
        keeps_buckets: These stay through the optimizer's step.
    """

    dense_ranks: Floats
    expert_ranks: Floats
    shards_parameters: Booleans
    whole_gradients: Booleans
    keeps_buckets: Booleans

    @classmethod
    def of(cls, x: LayoutColumns, job: Job) -> _Sharing:
        dense_ranks, expert_ranks = _shard_ranks(x)
        summed_once = communicates_once(x) & (num_micro_batches(x, job) > 1)
        return cls(
            dense_ranks=dense_ranks,
            expert_ranks=expert_ranks,
            shards_parameters=x.shard_level == ShardLevel.PARAMETERS,
            whole_gradients=(x.shard_level <= ShardLevel.OPTIMIZER) | summed_once,
            keeps_buckets=_keeps_buckets(x),
        )


def _on_rank(x: LayoutColumns, job: Job, sharing: _Sharing, rank: RankMemory) -> MemoryColumns:
    held = rank.held
    elements, owned = held.dense + held.expert, held.dense / sharing.dense_ranks + held.expert / sharing.expert_ranks
    master_bytes = np.where(x.precision == Precision.FP32, 0.0, 4.0)
    moment_bytes = 4.0 if job.workload.optimizer_state_precision == "fp32" else 2.0
    gradients_bytes = gradient_bytes(x, job) * np.where(sharing.whole_gradients, elements, owned)
    activations, beyond_counted = rank.activations_bytes, _beyond_counted(job)
    moving = _moving_bytes(x, held) + rank.joined_bytes
    gone = activations * (1 + beyond_counted) + rank.logits_bytes + moving + ~sharing.keeps_buckets * gradients_bytes
    beyond_backward = np.maximum(0.0, _widened_bytes(x, job, owned) - gone)
    return MemoryColumns(
        parameters_bytes=x.element_bytes * np.where(sharing.shards_parameters, owned, elements),
        gradients_bytes=gradients_bytes,
        optimizer_bytes=(master_bytes + 2 * moment_bytes) * owned,
        activations_bytes=activations,
        logits_bytes=rank.logits_bytes,
        buffers_bytes=moving + rank.received_bytes + beyond_backward,
        allowance_bytes=_allowance_bytes(job) + beyond_counted * activations,
        worst_stage=rank.rank,
    )


def gradient_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Bytes of an accumulated gradient."""
    return np.where(job.stack.sums_gradients_in_fp32, 4.0, x.element_bytes)


# ---------------------------------------------------------------- allowances
def _beyond_counted(job: Job) -> float:
    """Share of activations held beyond what the formulas count; on a CPU memory means bytes of tensors."""
    return 0.0 if job.cluster.accelerator.kind == "cpu" else job.stack.activation_overhead


def _allowance_bytes(job: Job) -> float:
    return 0.0 if job.cluster.accelerator.kind == "cpu" else float(job.stack.allowance_bytes)


# ---------------------------------------------------------------- weights
def _layer_elements(model: TransformerSpec) -> tuple[float, float]:
    """Elements of a dense layer, and of a sparse one without its routed experts; norms and biases included."""
    num_sparse = model.num_sparse_layers
    num_dense = model.num_layers - num_sparse
    without_experts = model.num_layer_parameters - model.num_expert_parameters
    if num_sparse == 0 or model.experts is None:
        return without_experts / num_dense, 0.0
    shared = model.experts.num_shared_experts * model.expert_matrix_parameters + model.router_matrix_parameters
    rest = (without_experts - num_dense * model.mlp_matrix_parameters - num_sparse * shared) / model.num_layers
    return rest + model.mlp_matrix_parameters, rest + shared


def _expert_layer_elements(model: TransformerSpec) -> float:
    return model.num_expert_parameters / model.num_sparse_layers if model.num_sparse_layers else 0.0


def _expert_split(x: LayoutColumns) -> Integers:
    """Ways in which a layer's experts are split: whole experts over expert ranks, or each over the tensor ranks."""
    return np.where(x.expert_parallel_degree > 1, x.expert_parallel_degree, x.tensor_parallel_degree)


def _shard_ranks(x: LayoutColumns) -> tuple[Floats, Floats]:
    """Ranks that share one copy of the dense weights, and of the experts; the expert ranks were taken from them."""
    sharded = x.shard_level != ShardLevel.NONE
    dense = np.where(sharded, x.data_parallel_shard_degree * x.context_parallel_degree, 1.0)
    expert = np.where(sharded, dense * x.tensor_parallel_degree / _expert_split(x), 1.0)
    return dense, np.maximum(1.0, expert)


# ---------------------------------------------------------------- activations
def _kinds(model: TransformerSpec) -> tuple[bool, ...]:
    """Dense layers, and sparse ones where the model has any; the second are ``True``."""
    return (False, True) if model.num_sparse_layers else (False,)


def _kept_bytes(x: LayoutColumns, job: Job, load: RankLoad, layers: Mapping[bool, Floats]) -> Floats:
    """Saved for the backward passes of all micro-batches in flight, and the layer that is computed again.

    Args:
        x: Layouts.
        job: The job.
        load: The rank's layers.
        layers: What a dense and a sparse layer save of one micro-batch.
    """
    layer_input = x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size / _hidden_split(x)
    full = x.recompute == Recompute.FULL
    kept, rebuilt = np.zeros(len(x)), np.zeros(len(x))
    for sparse, layer in layers.items():
        num_layers = load.num_sparse_layers if sparse else load.num_dense_layers
        kept += num_layers * np.where(full, layer_input, layer)
        rebuilt = np.maximum(rebuilt, layer * (num_layers > 0))
    # recomputation rebuilds one layer at a time
    return kept * load.micro_batches_in_flight + np.where(full, rebuilt, 0.0)


def _layer_saved_bytes(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """What one layer saves of one micro-batch, or rebuilds of it when it is recomputed in full.

    Per token, in elements: inputs of both norms and of both blocks, 4 h, repeated on every tensor rank unless sequence
    parallelism splits them; then, split over the tensor ranks, queries, keys and values, the attention's output, and
    of the feed-forward block its inner activations: both inputs of the gate, its activation and its product (4 f), or
    the input and output of GELU (2 f). The math kernel keeps the softmax's output, one per head and pair of tokens,
    unless selective recomputation drops it. With 2 bytes and f = 4 h that is s b h (8 + 24 / t + 2 a s / (h t)):
    equation 2 of arXiv 2205.05198 without its dropout masks.
    """
    model, tensor = job.model, x.tensor_parallel_degree
    tokens = tokens_per_pass(x, job)
    split = model.query_size + model.key_value_size + model.attention_output_size
    norms = np.where(x.fused_norm, 0, 2 * job.stack.unfused_norm_bytes / x.element_bytes)
    repeated = (4 + norms) * model.hidden_size / _hidden_split(x)
    inner = 4 if model.gated_mlp else 2
    if sparse and model.experts:
        experts = model.experts
        active = experts.experts_per_token + experts.num_shared_experts
        routed = 2 * experts.experts_per_token * model.hidden_size  # tokens permuted to their experts and back
        per_token = repeated + (split + inner * active * experts.expert_ffn_size + routed) / tensor
    else:
        per_token = repeated + (split + inner * model.ffn_size) / tensor
    keeps_scores = _has_scores(x) & (x.recompute != Recompute.SELECTIVE)
    scores = keeps_scores * (model.num_heads * float(job.workload.seq_len)) / tensor
    statistics_bytes = 4 * model.num_heads / tensor  # log-sum-exp of each row, fp32
    saved: Floats = tokens * (x.element_bytes * (per_token + scores) + statistics_bytes)
    return saved


def _working_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Gradients alive inside any layer's backward: of the hidden states, and of the widest inner activations."""
    model = job.model
    width = model.ffn_size
    if model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        width = max(width if model.experts.num_dense_layers else 0, active * model.experts.expert_ffn_size)
    inner = (3 if model.gated_mlp else 2) * width / x.tensor_parallel_degree
    scores = _has_scores(x) * job.stack.scores_alive * model.num_heads * float(job.workload.seq_len)
    per_token = 2 * model.hidden_size + inner + scores / x.tensor_parallel_degree
    gradients: Floats = x.element_bytes * tokens_per_pass(x, job) * per_token
    return gradients


def _has_scores(x: LayoutColumns) -> Booleans:
    """Whether the attention kernel keeps its scores in memory."""
    scores: Booleans = np.isin(x.attention_kernel, (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX))
    return scores


def _logits_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Logits as the projection wrote them and their log-softmax in fp32, and the gradients behind and before it.

    What PyTorch's cross-entropy holds at its fullest, in the backward; split over the tensor ranks. The gradients are
    those of one micro-batch. The rest is saved for each whose backward is to come: for all of them under GPipe, for
    one in the other schedules, whose last stage runs each backward right after the forward.
    """
    elements = tokens_per_pass(x, job) * job.model.vocab_size / logits_split(x, job)
    waiting = np.where(x.pipeline_schedule == PipelineSchedule.GPIPE, num_micro_batches(x, job), 1)
    waiting = np.where(x.pipeline_parallel_degree > 1, waiting, 1)
    joined = job.stack.gathers_logits & (x.tensor_parallel_degree > 1)
    copies_bytes = 4.0 * (job.stack.logits_copies + joined * GATHERED_COPIES)
    in_steps = waiting * (x.element_bytes + 4) + copies_bytes
    logits: Floats = elements * ((waiting + 1) * x.element_bytes if job.stack.fuses_loss else in_steps)
    return logits


def _hidden_split(x: LayoutColumns) -> Integers:
    """Ways in which hidden states between the blocks are split."""
    return np.where(x.sequence_parallel, x.tensor_parallel_degree, 1)


# ---------------------------------------------------------------- communication
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
    joined = np.where(x.sequence_parallel, tokens_per_pass(x, job) * job.model.hidden_size, 0.0)
    return x.element_bytes * joined


def _received_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Receive buffers for one end of a stage, which stay from the first step to the last.

    Each stage has one per micro-batch for its input and one for its output's gradient, except where the model begins
    and ends (PipelineStage of torch.distributed.pipelining, torch 2.13, allocates them all before the first forward).
    """
    hidden = tokens_per_pass(x, job) * job.model.hidden_size / _hidden_split(x)
    buffers: Floats = x.element_bytes * hidden * num_micro_batches(x, job)
    return np.where((x.pipeline_parallel_degree > 1) & job.stack.keeps_receive_buffers, buffers, 0.0)


# ---------------------------------------------------------------- optimizer step
def _widened_bytes(x: LayoutColumns, job: Job, owned: Floats) -> Floats:
    """The fp32 gradients that AdamW steps with, all at once; where gradients are fp32, these are they."""
    return np.where(gradient_bytes(x, job) == 4.0, 0.0, 4.0) * owned


def _keeps_buckets(x: LayoutColumns) -> Booleans:
    """Whether gradients stay through the optimizer's step, as views of the buckets that replicas reduce.

    Others are forgotten one by one as they are widened. DistributedDataParallel, ``gradient_as_bucket_view``.
    """
    keeps: Booleans = (x.shard_level <= ShardLevel.OPTIMIZER) & (x.data_parallel_degree * x.context_parallel_degree > 1)
    return keeps
