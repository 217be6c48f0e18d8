"""Memory of activations, by part of a layer.

``_scaled_dot_product_attention_math`` (aten/src/ATen/native/transformers/attention.cpp, torch 2.13) converts 16-bit
inputs to fp32 unless ``ctx.allowFP16BF16ReductionMathSDP()``. If context ranks exchange keys and values, the trial job
computes attention block by block, and its backward pass computes the scores again (``trials/distributed/context``).

The formulas follow arXiv 2205.05198, section 4, generalised to grouped queries, gated feed-forward blocks, models
without dropout, and kernels that keep no scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from autotuner.core.choices import AttentionKernel, ContextExchange, PipelineSchedule, Precision, Recompute
from autotuner.core.columns import Booleans, Floats, LayoutColumns, is_one_of
from autotuner.core.job import Job
from autotuner.core.recompute import LayerPart, recomputed
from autotuner.costmodel.shared.low_precision import saved_share
from autotuner.costmodel.shared.micro_batch import (
    gathers_logits,
    hidden_bytes,
    hidden_split,
    load_factor,
    logits_split,
    own_tokens,
    tokens_per_pass,
    width_split,
)
from autotuner.costmodel.shared.stages import PartKind, RankLoad, num_micro_batches


def with_rounded_inputs(
    parts: Mapping[LayerPart, Floats], x: LayoutColumns, job: Job, *, sparse: bool
) -> dict[LayerPart, Floats]:
    """Return the kept activations of a layer by part, in bytes, if inputs of matrix products are kept in low precision.

    The input of a product is kept to compute the gradient of the product's weight. Three inputs are kept rounded
    instead of in 16 bits: the input of attention, the input of the feed-forward block, and the input of this block's
    last product. The output of the attention core is kept in both forms, because the core's own backward pass reads it
    in 16 bits. Inputs of gates and norms are kept in 16 bits, because no product reads them.

    Args:
        parts: Bytes of each part of the layer in 16 bits.
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    share = saved_share(x, job)
    if (share == 1.0).all():
        return dict(parts)
    tokens, less = x.element_bytes * tokens_per_pass(x, job), 1.0 - share
    hidden = less * tokens * job.model.hidden_size / hidden_split(x)
    twice = np.where(share < 1.0, share, 0.0) * tokens * job.model.attention_output_size / x.tensor_parallel_degree
    changes = {LayerPart.ATTENTION_NORM: -hidden, LayerPart.CORE: twice}
    changes |= _of_experts(x, job, less * tokens) if sparse and job.model.experts else _of_mlp(x, job, less, hidden)
    return {part: size + changes.get(part, 0.0) for part, size in parts.items()}


def _of_mlp(x: LayoutColumns, job: Job, less: Floats, hidden: Floats) -> dict[LayerPart, Floats]:
    inner = less * x.element_bytes * tokens_per_pass(x, job) * job.model.ffn_size / x.tensor_parallel_degree
    return {LayerPart.MLP_NORM: -hidden, LayerPart.MLP_ACTIVATION: -inner}


def _of_experts(x: LayoutColumns, job: Job, less: Floats) -> dict[LayerPart, Floats]:
    """Return the bytes of the experts' copies of tokens and inner activations.

    The router reads the block's input in 16 bits.
    """
    model, experts = job.model, job.model.experts
    assert experts is not None
    one = less / x.tensor_parallel_degree
    copies = one * experts.experts_per_token * load_factor(x, job, experts)
    return {
        LayerPart.ROUTING: -copies * model.hidden_size,
        LayerPart.EXPERT_ACTIVATION: -copies * experts.expert_ffn_size,
        LayerPart.SHARED_EXPERTS: -one * experts.shared_ffn_size,
    }


_SCORES_ALIVE = 2.0
"""Number of copies of one layer's scores: their gradients before and after the softmax. The softmax's result is kept
anyway."""

_BLOCK_SCORES_ALIVE = 4.0
"""Number of copies of a block's scores: exponentiated scores, their gradient, the gradient without the softmax's own
part, and the product of both (``_math_backward`` of trials/distributed/block_attention.py)."""


def with_fp32_attention(parts: Mapping[LayerPart, Floats], x: LayoutColumns, job: Job) -> dict[LayerPart, Floats]:
    """Return the kept activations of a layer by part, in bytes, where attention is computed in fp32.

    Only layouts whose attention consists of separate kernels (products, softmax) compute it in fp32. All other layouts
    keep the same bytes, except for a second copy of the attention output that context ranks may need.

    Args:
        parts: Bytes of each part of the layer without fp32 attention.
        x: Layouts, one per row.
        job: The job.
    """
    composed, blocks = _is_composed(x, job), _in_blocks(x)
    whole, changed = composed & ~blocks, dict(parts)
    each = 4.0 * tokens_per_pass(x, job) * job.model.query_size / x.tensor_parallel_degree
    if job.model.latent_attention is None:
        for part in (LayerPart.QUERY, LayerPart.KEY, LayerPart.VALUE):
            changed[part] = np.where(whole, each, parts[part])
    scores = parts[LayerPart.SCORES]
    changed[LayerPart.SCORES] = np.where(composed, np.where(blocks, 0.0, 4.0 / x.element_bytes * scores), scores)
    # context ranks reorder the output, so the next product reads another tensor than the core's backward
    again = job.stack.widens_context_gradients & (x.context_parallel_degree > 1) & ~whole
    changed[LayerPart.CORE] = np.where(again, 2.0, 1.0) * parts[LayerPart.CORE]
    return changed


def core_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the temporary bytes of attention's backward pass with separate fp32 kernels; 0 with any other attention.

    The bytes include the gradient of the residual stream.
    """
    tokens, blocks, tensor = tokens_per_pass(x, job), _in_blocks(x), x.tensor_parallel_degree
    keys = np.where(blocks, float(job.workload.seq_len) / x.context_parallel_degree, float(job.workload.seq_len))
    scores = 4.0 * np.where(blocks, _BLOCK_SCORES_ALIVE, _SCORES_ALIVE) * tokens * keys * job.model.num_heads / tensor
    heads = 4.0 * np.where(blocks, 2.0, 1.0) * tokens * job.model.query_size / tensor
    working = scores + heads + hidden_bytes(x, job) / hidden_split(x)
    return np.where(_is_composed(x, job), working, 0.0)


def _is_composed(x: LayoutColumns, job: Job) -> Booleans:
    composed: Booleans = (x.attention_kernel == AttentionKernel.MATH) & job.stack.math_in_fp32
    return composed


def _in_blocks(x: LayoutColumns) -> Booleans:
    """Return the layouts in which context ranks exchange keys and values, and not heads."""
    blocks: Booleans = (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL)
    return blocks


GATHERED_COPIES = 2.0
"""Number of additional fp32 copies of the logits if tensor ranks gather them: the parts, and the whole.

With this number, the same formula explains the out-of-memory rows of arXiv 2311.05610 with and without tensor ranks.
"""


_P = LayerPart
_UNTIL_CORE = frozenset({_P.ATTENTION_NORM, _P.QUERY, _P.KEY, _P.VALUE, _P.LATENT_UP, _P.SCORES, _P.CORE, _P.ROTATION})
"""Parts of a layer whose memory is still needed in the backward pass of its attention core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """The bytes of activations that one layer keeps in memory for the backward pass of one micro-batch."""

    kept: Floats
    """Bytes that a layer keeps until its backward pass, with the layout's recomputation."""
    rebuilt: Floats
    """Bytes that the layer's backward pass computes again."""
    not_recomputed: Floats
    """Bytes that a layer without recomputation keeps until its backward pass."""
    moved: Floats
    """Part of ``kept`` that is moved to host memory if activations are offloaded. All of ``not_recomputed`` is moved
    too."""
    mlp: Floats
    """Part of these bytes that is freed before the backward pass reaches the attention core."""

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, *, sparse: bool) -> LayerBytes:
        """Return the bytes of activations that one layer keeps for its backward pass, with or without experts.

        With full recomputation, a layer keeps its input and computes the rest again. With selective recomputation, the
        policy of the software stack (``RecomputePolicy``) says which parts the layer keeps. It computes the dropped
        parts again.

        Args:
            x: Layouts, one per row.
            job: The job.
            sparse: True for a layer with experts.
        """
        plain, layer_input = _plain_parts(x, job, sparse=sparse), hidden_bytes(x, job) / hidden_split(x)
        parts = with_rounded_inputs(plain, x, job, sparse=sparse)
        selective, full = x.recompute == Recompute.SELECTIVE, x.recompute == Recompute.FULL
        saved = layer_input + reduce(np.add, with_fp32_attention(parts, x, job).values())
        kept, rebuilt = np.where(full, layer_input, saved), np.where(full, saved - layer_input, 0.0)
        if selective.any():
            chosen = layer_input + _chosen_bytes(x, job, parts)
            dropped = np.maximum(saved - chosen, 0.0)
            kept, rebuilt = np.where(selective, saved - dropped, kept), np.where(selective, dropped, rebuilt)
        moved = np.where(x.recompute == Recompute.NONE, saved, np.minimum(layer_input, kept))
        mlp = reduce(np.add, (size for part, size in parts.items() if part not in _UNTIL_CORE))
        return cls(kept=kept, rebuilt=rebuilt, not_recomputed=saved, moved=moved, mlp=mlp)


def _chosen_bytes(x: LayoutColumns, job: Job, parts: Mapping[LayerPart, Floats]) -> Floats:
    """Return the bytes that a layer with selective recomputation keeps in addition to its input."""
    policy = recomputed(job.stack.selective_recompute)
    chosen = [size for part, size in parts.items() if part not in policy.drops]
    chosen += [size for part, size in _ends_of_blocks(x, job).items() if part in policy.keeps]
    if LayerPart.SCORES in policy.drops and LayerPart.CORE in policy.keeps:
        # a policy by operation knows fused cores; of others it drops the result, too
        chosen.append(-1.0 * has_scores(x) * parts[LayerPart.CORE])
    return reduce(np.add, chosen, np.zeros(len(x)))


def _plain_parts(x: LayoutColumns, job: Job, *, sparse: bool) -> dict[LayerPart, Floats]:
    """Return the bytes per micro-batch that each part of a layer saves for a backward pass without recomputation.

    Elements per token: the inputs of both blocks and of the second norm have h each, repeated on every tensor rank
    unless sequence parallelism splits them. The following are split over the tensor ranks: queries, keys and values,
    the attention's output, and the inner activations of the feed-forward block: both inputs of the gate, its activation
    and its product (4 f), or the input and output of GELU (2 f). Kernels with scores in memory keep the softmax's
    output, one per head and pair of tokens. With 2 bytes and f = 4 h that is, with the layer's input, s b h (8 + 24 / t
    + 2 a s / (h t)): equation 2 of arXiv 2205.05198 without its dropout masks. Keys and values gathered from the
    context ranks are kept whole.
    """
    model, tensor, one = job.model, x.tensor_parallel_degree, x.element_bytes * tokens_per_pass(x, job)
    hidden = one * model.hidden_size / hidden_split(x)
    copies = hidden * _norm_copies_bytes(x, job) / x.element_bytes
    norm = ~x.compiled * _block_input(x, job, hidden) + copies
    gathers = x.context_exchange == ContextExchange.ALL_GATHER
    key_values = one * model.key_value_size * np.where(gathers, x.context_parallel_degree, 1) / tensor
    statistics = 4 * tokens_per_pass(x, job) * model.num_heads / tensor  # log-sum-exp of each row, fp32
    parts = {
        LayerPart.ATTENTION_NORM: norm,
        **_heads(x, job, one, key_values),
        LayerPart.SCORES: one * has_scores(x) * model.num_heads * float(job.workload.seq_len) / tensor,
        LayerPart.CORE: one * model.attention_output_size / tensor + statistics,
        LayerPart.ROTATION: _rotation_tables(x, job, one),
        LayerPart.RESIDUAL: hidden,
        LayerPart.MLP_NORM: norm,
    }
    parts |= _other_norms(x, job, parts, hidden, copies) | _output_gate(x, job, one, parts)
    return parts | (_expert_parts(x, job, one) if sparse and model.experts else _mlp_parts(x, job, one))


def _other_norms(
    x: LayoutColumns, job: Job, parts: Mapping[LayerPart, Floats], hidden: Floats, copies: Floats
) -> dict[LayerPart, Floats]:
    """Return the parts that need more memory with norms after the blocks, or less with parallel blocks.

    A norm after a block keeps the output of the block. Parallel blocks begin with the layer's input, which may be
    normalised once.
    """
    if job.model.num_norms_per_layer == 4:
        names = (LayerPart.ATTENTION_NORM, LayerPart.MLP_NORM)
        return {name: parts[name] + hidden + copies for name in names}
    gone = {LayerPart.RESIDUAL: job.model.parallel_blocks, LayerPart.MLP_NORM: job.model.num_norms_per_layer == 1}
    return {name: np.zeros(len(x)) for name, is_gone in gone.items() if is_gone}


def _output_gate(x: LayoutColumns, job: Job, one: Floats, parts: Mapping[LayerPart, Floats]) -> dict[LayerPart, Floats]:
    """Return the bytes of the attention core with an output gate.

    They include the gate after its sigmoid and the gated output.
    """
    gates = 2 * one * job.model.output_gate_size / x.tensor_parallel_degree
    return {LayerPart.CORE: parts[LayerPart.CORE] + gates} if job.model.attention_output_gate else {}


def _block_input(x: LayoutColumns, job: Job, hidden: Floats) -> Floats:
    """Return the bytes of a block's input that is kept for the gradients of its first weights.

    It is the gathered input if the stack keeps that.
    """
    gathered = x.sequence_parallel & (not job.stack.gathers_again)
    return np.where(gathered, hidden * x.tensor_parallel_degree, hidden)


def _norm_copies_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes per element that a norm keeps beyond its input and its result.

    On a CPU, PyTorch computes RMSNorm from elementary operations (``rms_norm_composite``, torch 2.13), and keeps the
    input in fp32 and the normalised value.
    """
    composed = np.zeros(len(x))
    if job.cluster.accelerator.kind == "cpu" and job.model.norm == "rmsnorm":
        composed = np.where(x.precision == Precision.FP32, 4.0, 8.0)
    return np.where(x.fused_norm | x.compiled, composed, job.stack.unfused_norm_bytes)


def _rotation_tables(x: LayoutColumns, job: Job, one: Floats) -> Floats:
    """Return the bytes of cosines and sines that a rotation by elementary operations keeps for queries and keys."""
    has_table = job.model.num_learned_positions == 0 and not job.stack.fuses_gate
    copied = np.where(x.precision == Precision.FP32, 0.0, 2.0)  # in fp32 all layers read one table
    return one * copied * np.where(x.compiled, 0.0, has_table * job.model.head_dim / x.micro_batch_size)


def _heads(x: LayoutColumns, job: Job, one: Floats, key_values: Floats) -> dict[LayerPart, Floats]:
    """Return the bytes of queries, keys and values, with latents before and after their norms.

    If some layers have linear attention, the result is the mean over all layers.
    """
    queries, latent = one * job.model.query_size / x.tensor_parallel_degree, job.model.latent_attention
    if linear := job.model.linear_attention:
        share = job.model.linear_share  # projected, convolved and activated; the gate
        sizes = one * (3 * linear.convolved_size + linear.output_size) / x.tensor_parallel_degree
        queries, key_values = (1 - share) * queries + share * sizes, (1 - share) * key_values
    if latent is None:
        return {LayerPart.QUERY: queries, LayerPart.KEY: key_values / 2, LayerPart.VALUE: key_values / 2}
    latents = 2 * ((latent.query_rank or 0) + latent.key_value_rank) + latent.rope_head_dim
    return {LayerPart.QUERY: one * latents / hidden_split(x), LayerPart.LATENT_UP: queries + key_values}


def _mlp_parts(x: LayoutColumns, job: Job, one: Floats) -> dict[LayerPart, Floats]:
    each = one * job.model.ffn_size / x.tensor_parallel_degree
    if not job.model.gated_mlp:
        return {LayerPart.MLP_UP: each, LayerPart.MLP_ACTIVATION: ~x.compiled * each}
    results = np.where(x.compiled, 0.0, 1.0 if job.stack.fuses_gate else 2.0)
    return {LayerPart.MLP_GATE: each, LayerPart.MLP_UP: each, LayerPart.MLP_ACTIVATION: results * each}


def _expert_parts(x: LayoutColumns, job: Job, one: Floats) -> dict[LayerPart, Floats]:
    """Return the bytes of experts on the rank with most tokens: inputs, inner activations and outputs.

    The outputs are kept for the gradients of the routing weights, unless the stack applies these weights earlier. The
    router's scores are kept in fp32: before the softmax, after it, and those of the selected experts.
    """
    model, experts = job.model, job.model.experts
    assert experts is not None
    tensor, inner = x.tensor_parallel_degree, 4 if model.gated_mlp else 2
    copies = one / tensor * experts.experts_per_token * load_factor(x, job, experts)
    each = copies * experts.expert_ffn_size
    scores = 3 * 4 * own_tokens(x, job) * experts.num_experts
    return {
        LayerPart.ROUTING: (1 + job.stack.weighs_answers) * copies * width_split(x, job) * model.hidden_size + scores,
        **({LayerPart.EXPERT_GATE: each} if model.gated_mlp else {}),
        LayerPart.EXPERT_UP: each,
        LayerPart.EXPERT_ACTIVATION: (inner - 1 - model.gated_mlp) * each,
        LayerPart.SHARED_EXPERTS: inner * one / tensor * experts.shared_ffn_size,
    }


def _ends_of_blocks(x: LayoutColumns, job: Job) -> dict[LayerPart, Floats]:
    """Return the bytes per micro-batch that recomputation may keep although a plain backward pass does not read them.

    These are the products that end a block, which every tensor rank has whole, and the results of their collectives.
    """
    whole, tensor = hidden_bytes(x, job), x.tensor_parallel_degree > 1
    gathered, reduced = whole * x.sequence_parallel, whole / hidden_split(x) * tensor
    return {
        LayerPart.ATTENTION_OUTPUT: whole,
        LayerPart.ATTENTION_GATHER: gathered,
        LayerPart.ATTENTION_REDUCE: reduced,
        LayerPart.MLP_DOWN: whole,
        LayerPart.MLP_GATHER: gathered,
        LayerPart.MLP_REDUCE: reduced,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBytes:
    """The bytes of activations on a rank at several moments of a step, to find the moment of the memory peak."""

    waiting: Floats
    """Bytes saved for backward passes when most micro-batches are in flight."""
    passing: Floats
    """Additional bytes during the backward pass of a layer."""
    ending: Floats
    """Bytes in the last layer's backward pass of the first micro-batch, when the gradients of all weights exist."""
    one_less: Floats
    """Bytes like ``waiting``, after the first of these micro-batches has had its backward pass."""


def kept_bytes(x: LayoutColumns, job: Job, load: RankLoad, layers: Mapping[PartKind, LayerBytes]) -> KeptBytes:
    """Return the bytes of activations on a pipeline rank at several moments of the step.

    Args:
        x: Layouts.
        job: The job.
        load: Layers of the rank.
        layers: For each kind of layer, the bytes of activations of one layer.
    """
    kept, moved = np.zeros(len(x)), np.zeros(len(x))
    rebuilt, one_layer, attending = np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x))
    for kind, layer in layers.items():
        num_layers, num_not_recomputed = load.counts[kind], load.not_recomputed[kind]
        whole_layers = num_not_recomputed * layer.not_recomputed
        kept += (num_layers - num_not_recomputed) * layer.kept + whole_layers
        moved += (num_layers - num_not_recomputed) * layer.moved + whole_layers
        # a last layer without recomputation is freed before the previous layer is recomputed
        gone = np.where(_last_recomputes(x, load), 0.0, layer.not_recomputed)
        again = np.maximum(layer.rebuilt - gone, 0.0)
        rebuilt = np.maximum(rebuilt, again * (num_layers > 0))
        attending = np.maximum(attending, (again - layer.mlp + core_bytes(x, job)) * (num_layers > 0))
        saved = np.where(num_not_recomputed > 0, layer.not_recomputed, layer.moved)
        one_layer = np.maximum(one_layer, saved * (num_layers > 0))
    in_flight = load.micro_batches_in_flight
    # recomputation rebuilds one layer at a time
    passing = np.maximum(rebuilt + _working_bytes(x, job), attending)
    # offloaded activations of the present and of the last layer are being copied
    on_device = np.where(x.offload_activations, kept - moved, kept) + _ends_bytes(x, job, load)
    on_its_way = np.where(x.offload_activations, np.minimum(moved * in_flight, 2 * one_layer), 0.0)
    later = np.maximum(in_flight - 1, 0.0) * on_device
    return KeptBytes(
        waiting=in_flight * on_device + on_its_way,
        passing=passing,
        ending=later + np.minimum(one_layer, kept) + passing,
        one_less=later + on_its_way,
    )


def _last_recomputes(x: LayoutColumns, load: RankLoad) -> Booleans:
    """Return the layouts in which the last layer of a stage recomputes.

    Every n-th layer recomputes, beginning with the first of the stage.
    """
    last: Booleans = (np.ceil(load.num_layers / x.virtual_stages_per_rank) - 1) % x.recompute_every == 0
    return last


def _ends_bytes(x: LayoutColumns, job: Job, load: RankLoad) -> Floats:
    """Return the bytes of the input and the result of the norm before the output projection."""
    hidden = hidden_bytes(x, job) / hidden_split(x)
    return load.has_output * (hidden + _block_input(x, job, hidden))


def _working_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the temporary bytes in the backward pass of a feed-forward block, or of unfused attention.

    They are the gradient of the residual stream (gathered if it is split) and gradients of inner activations: that of
    the last matrix's input, together with the gradient of the matrix or of the gate.
    """
    model, tensor, tokens = job.model, x.tensor_parallel_degree, tokens_per_pass(x, job)
    width: Floats | int = model.ffn_size
    if model.experts:
        routed = model.experts.experts_per_token * load_factor(x, job, model.experts)
        active = routed * model.experts.expert_ffn_size + model.experts.shared_ffn_size
        width = np.maximum(width if model.num_sparse_layers < model.num_layers else 0, active)
    beside = np.maximum(tokens * model.gated_mlp, 0 if model.experts else model.hidden_size)
    scores = has_scores(x) * job.stack.scores_alive * model.num_heads * float(job.workload.seq_len)
    hidden = model.hidden_size * (1 / hidden_split(x) + x.sequence_parallel)
    working = tokens * (hidden + scores / tensor) + (tokens + beside) * width / tensor
    alive: Floats = x.element_bytes * working
    return alive


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsBytes:
    """The bytes of logits and loss tensors at several moments of a step, to find the moment of the memory peak."""

    passing: Floats
    """Bytes at the peak of the loss."""
    waiting: Floats
    """Bytes that stay while the layers' backward passes follow."""
    second: Floats
    """Bytes at the loss's peak of the second micro-batch's backward pass, if all forward passes come first."""

    def __mul__(self, share: Floats | Booleans) -> LogitsBytes:
        return LogitsBytes(passing=self.passing * share, waiting=self.waiting * share, second=self.second * share)


def logits_bytes(x: LayoutColumns, job: Job) -> LogitsBytes:
    """Return the bytes of logits, of their log-softmax in fp32, and of the gradients with respect to both.

    These are the tensors of PyTorch's cross-entropy at its memory peak, in the backward pass. They are split over the
    tensor ranks. The gradients belong to one micro-batch. The other tensors are saved for each micro-batch whose
    backward pass has not run yet. Under GPipe these are all micro-batches. In other schedules it is one micro-batch,
    because the last stage runs each backward pass right after the forward pass. In a pipeline, the logits also stay in
    memory after the loss, because a stage keeps its results. Without a pipeline the logits are freed.
    """
    stack, in_pipeline = job.stack, x.pipeline_parallel_degree > 1
    elements = tokens_per_pass(x, job) * job.model.vocab_size / logits_split(x, job)
    in_flight = np.where(in_pipeline & (x.pipeline_schedule == PipelineSchedule.GPIPE), num_micro_batches(x, job), 1)
    split = (x.tensor_parallel_degree > 1) & ~gathers_logits(x, job)
    copies = stack.logits_copies + split * stack.split_logits_copies + _gathered_copies(x, job)
    if stack.fuses_loss:
        each, gradient = x.element_bytes, x.element_bytes
    else:
        each, gradient = 4.0 + x.element_bytes * (in_pipeline | stack.keeps_logits), 4.0 * copies
    returned = x.element_bytes * in_pipeline
    return LogitsBytes(
        passing=elements * (in_flight * each + gradient),
        waiting=elements * ((in_flight - 1) * each + returned),
        second=elements * np.where(in_flight > 1, (in_flight - 1) * each + gradient, 0.0),
    )


def _gathered_copies(x: LayoutColumns, job: Job) -> Floats:
    return np.where(gathers_logits(x, job) & job.stack.gathers_logits, GATHERED_COPIES, 0.0)


def has_scores(x: LayoutColumns) -> Booleans:
    """Return a mask over the layouts: True where the attention kernel writes its scores to memory."""
    return is_one_of(x.attention_kernel, (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX))
