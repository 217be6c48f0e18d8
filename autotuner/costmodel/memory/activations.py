"""Activations: what passes leave behind for the backward, and what they work with.

After arXiv 2205.05198, section 4, generalised to grouped queries, gated feed-forward blocks, models without dropout,
and kernels that keep no scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, LayoutColumns
from autotuner.costmodel.micro_batch import gathers_logits, hidden_bytes, hidden_split, logits_split, tokens_per_pass
from autotuner.costmodel.pipeline.rank_load import RankLoad, num_micro_batches
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import AttentionKernel, ContextExchange, PipelineSchedule, Recompute

__all__ = ["LayerBytes", "has_scores", "kept_bytes", "layer_saved_bytes", "logits_bytes", "working_bytes"]

GATHERED_COPIES = 2.0
"""Further fp32 copies of the logits where tensor ranks gather them: the parts, and the whole that they are joined to.

With it, one share of logits explains the out-of-memory rows of arXiv 2311.05610 with and without tensor ranks.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer leaves behind of one micro-batch.

    Attributes:
        kept: Until its backward, as the layout recomputes.
        rebuilt: Computed again in its backward.
        not_recomputed: Kept until its backward if it is a layer that does not recompute.
        moved: The part of ``kept`` that lies in the host's memory where activations are offloaded; all of
            ``not_recomputed`` does.
    """

    kept: Floats
    rebuilt: Floats
    not_recomputed: Floats
    moved: Floats

    @classmethod
    def of(cls, x: LayoutColumns, job: Job, *, sparse: bool) -> LayerBytes:
        """Bytes of a layer of one kind.

        A layer that recomputes in full keeps its input and rebuilds the rest. A selective one drops the scores, where
        the kernel has them in memory; or, where the stack keeps products, all but those (``_product_elements``).
        """
        saved, layer_input = layer_saved_bytes(x, job, sparse=sparse), hidden_bytes(x, job) / hidden_split(x)
        selective, full = x.recompute == Recompute.SELECTIVE, x.recompute == Recompute.FULL
        kept, rebuilt = np.where(full, layer_input, saved), np.where(full, saved, 0.0)
        if not selective.any():
            not_recomputed = saved
        elif job.stack.keeps_products:
            not_recomputed = layer_saved_bytes(x, job, sparse=sparse, with_scores=True)
            products = np.minimum(_products_bytes(x, job, sparse=sparse), not_recomputed)
            kept, rebuilt = np.where(selective, products, kept), np.where(selective, not_recomputed - products, rebuilt)
        else:
            not_recomputed = layer_saved_bytes(x, job, sparse=sparse, with_scores=True)
        moved = np.where(x.recompute == Recompute.NONE, saved, np.minimum(layer_input, kept))
        return cls(kept=kept, rebuilt=rebuilt, not_recomputed=not_recomputed, moved=moved)


def layer_saved_bytes(x: LayoutColumns, job: Job, *, sparse: bool, with_scores: bool = False) -> Floats:
    """What one layer saves of one micro-batch, or rebuilds of it when it is recomputed in full.

    Per token, in elements: inputs of both norms and of both blocks, 4 h, repeated on every tensor rank unless sequence
    parallelism splits them; then, split over the tensor ranks, queries, keys and values, the attention's output, and
    of the feed-forward block its inner activations: both inputs of the gate, its activation and its product (4 f), or
    the input and output of GELU (2 f). The math kernel keeps the softmax's output, one per head and pair of tokens,
    unless selective recomputation drops it. With 2 bytes and f = 4 h that is s b h (8 + 24 / t + 2 a s / (h t)):
    equation 2 of arXiv 2205.05198 without its dropout masks. Keys and values gathered from the context ranks are kept
    whole.

    Args:
        x: Layouts.
        job: The job.
        sparse: A layer with experts.
        with_scores: Scores count even where selective recomputation drops them.
    """
    model, tensor = job.model, x.tensor_parallel_degree
    norms = np.where(x.fused_norm | x.compiled, 0, 2 * job.stack.unfused_norm_bytes / x.element_bytes)
    repeated = (4 + norms) * model.hidden_size / hidden_split(x)
    per_token = repeated + (_attention_elements(x, job) + _inner_elements(job, 4, 2, sparse=sparse)) / tensor
    keeps_scores = has_scores(x) & (with_scores | (x.recompute != Recompute.SELECTIVE))
    scores = keeps_scores * (model.num_heads * float(job.workload.seq_len)) / tensor
    statistics_bytes = 4 * model.num_heads / tensor  # log-sum-exp of each row, fp32
    saved: Floats = tokens_per_pass(x, job) * (x.element_bytes * (per_token + scores) + statistics_bytes)
    return saved


def _products_bytes(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """What a layer keeps whose policy saves products of matrices, fused attention's output and collectives.

    Per token, in elements: the layer's input; queries, keys, values and, of a fused kernel, the output; both products
    that end a block, which every tensor rank has whole, and what its collectives make of them; inputs of the gate.
    """
    model, tensor = job.model, x.tensor_parallel_degree
    outputs = 2.0 + (tensor > 1) * np.where(x.sequence_parallel, 2.0 + 2.0 / tensor, 2.0)
    whole = (1 / hidden_split(x) + outputs) * model.hidden_size
    attention = _attention_elements(x, job) - has_scores(x) * model.attention_output_size
    per_token = whole + (attention + _inner_elements(job, 2, 1, sparse=sparse)) / tensor
    kept: Floats = tokens_per_pass(x, job) * (x.element_bytes * per_token + 4 * model.num_heads / tensor)
    return kept


def _attention_elements(x: LayoutColumns, job: Job) -> Floats:
    """Queries, keys, values and outputs of a token, over all tensor ranks."""
    gathers = x.context_exchange == ContextExchange.ALL_GATHER
    key_values = job.model.key_value_size * np.where(gathers, x.context_parallel_degree, 1)
    elements: Floats = job.model.query_size + key_values + job.model.attention_output_size
    return elements


def _inner_elements(job: Job, gated: int, plain: int, *, sparse: bool) -> float:
    """So many activations as wide as the feed-forward block, gated or plain; experts add the tokens they permute."""
    model, inner = job.model, gated if job.model.gated_mlp else plain
    if not (sparse and model.experts):
        return inner * model.ffn_size
    experts = model.experts
    active = experts.experts_per_token + experts.num_shared_experts
    routed = 2 * experts.experts_per_token * model.hidden_size  # to their experts and back
    return inner * active * experts.expert_ffn_size + routed


def kept_bytes(x: LayoutColumns, load: RankLoad, layers: Mapping[bool, LayerBytes]) -> Floats:
    """Saved for the backward passes of all micro-batches in flight, and the layer that is computed again.

    Args:
        x: Layouts.
        load: The rank's layers.
        layers: What a dense layer leaves behind, and a sparse one.
    """
    kept, moved = np.zeros(len(x)), np.zeros(len(x))
    rebuilt, passing = np.zeros(len(x)), np.zeros(len(x))
    for sparse, layer in layers.items():
        num_layers = load.num_sparse_layers if sparse else load.num_dense_layers
        num_not_recomputed = load.num_sparse_not_recomputed if sparse else load.num_dense_not_recomputed
        whole_layers = num_not_recomputed * layer.not_recomputed
        kept += (num_layers - num_not_recomputed) * layer.kept + whole_layers
        moved += (num_layers - num_not_recomputed) * layer.moved + whole_layers
        rebuilt = np.maximum(rebuilt, layer.rebuilt * (num_layers > 0))
        passing = np.maximum(
            passing, np.where(num_not_recomputed > 0, layer.not_recomputed, layer.moved) * (num_layers > 0)
        )
    kept, moved = kept * load.micro_batches_in_flight, moved * load.micro_batches_in_flight
    # on their way there are those of the layer that computes and of the one that computed last
    on_device = np.where(x.offload_activations, kept - moved + np.minimum(moved, 2 * passing), kept)
    return on_device + rebuilt  # recomputation rebuilds one layer at a time


def working_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Gradients alive inside any layer's backward: of the hidden states, and of the widest inner activations."""
    model = job.model
    width = model.ffn_size
    if model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        width = max(width if model.experts.num_dense_layers else 0, active * model.experts.expert_ffn_size)
    inner = (3 if model.gated_mlp else 2) * width / x.tensor_parallel_degree
    scores = has_scores(x) * job.stack.scores_alive * model.num_heads * float(job.workload.seq_len)
    per_token = 2 * model.hidden_size + inner + scores / x.tensor_parallel_degree
    gradients: Floats = x.element_bytes * tokens_per_pass(x, job) * per_token
    return gradients


def logits_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Logits as the projection wrote them and their log-softmax in fp32, and the gradients behind and before it.

    What PyTorch's cross-entropy holds at its fullest, in the backward; split over the tensor ranks. The gradients are
    those of one micro-batch. The rest is saved for each whose backward is to come: for all of them under GPipe, for
    one in the other schedules, whose last stage runs each backward right after the forward.
    """
    elements = tokens_per_pass(x, job) * job.model.vocab_size / logits_split(x, job)
    in_flight = np.where(x.pipeline_schedule == PipelineSchedule.GPIPE, num_micro_batches(x, job), 1)
    in_flight = np.where(x.pipeline_parallel_degree > 1, in_flight, 1)
    copies_bytes = 4.0 * (job.stack.logits_copies + gathers_logits(x, job) * GATHERED_COPIES)
    in_steps = in_flight * (x.element_bytes + 4) + copies_bytes
    logits: Floats = elements * ((in_flight + 1) * x.element_bytes if job.stack.fuses_loss else in_steps)
    return logits


def has_scores(x: LayoutColumns) -> Booleans:
    """Whether the attention kernel has its scores in memory."""
    scores: Booleans = np.isin(x.attention_kernel, (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX))
    return scores
