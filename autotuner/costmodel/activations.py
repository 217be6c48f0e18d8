"""Activations: what passes leave behind for the backward, and what they work with.

After arXiv 2205.05198, section 4, generalised to grouped queries, gated feed-forward blocks, models without dropout,
and kernels that keep no scores.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotuner.costmodel.columns import Booleans, Floats, LayoutColumns
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split, logits_split, tokens_per_pass
from autotuner.costmodel.pipeline import RankLoad, num_micro_batches
from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Recompute
from autotuner.domain.legality import Job

__all__ = ["kept_bytes", "layer_saved_bytes", "logits_bytes", "working_bytes"]

GATHERED_COPIES = 2.0
"""Further fp32 copies of the logits where tensor ranks gather them: the parts, and the whole that they are joined to.

With it, one share of logits explains the out-of-memory rows of arXiv 2311.05610 with and without tensor ranks.
"""


def layer_saved_bytes(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
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
    repeated = (4 + norms) * model.hidden_size / hidden_split(x)
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


def kept_bytes(x: LayoutColumns, job: Job, load: RankLoad, layers: Mapping[bool, Floats]) -> Floats:
    """Saved for the backward passes of all micro-batches in flight, and the layer that is computed again.

    Args:
        x: Layouts.
        job: The job.
        load: The rank's layers.
        layers: What a dense and a sparse layer save of one micro-batch.
    """
    layer_input = hidden_bytes(x, job) / hidden_split(x)
    full = x.recompute == Recompute.FULL
    kept, rebuilt = np.zeros(len(x)), np.zeros(len(x))
    for sparse, layer in layers.items():
        num_layers = load.num_sparse_layers if sparse else load.num_dense_layers
        kept += num_layers * np.where(full, layer_input, layer)
        rebuilt = np.maximum(rebuilt, layer * (num_layers > 0))
    # recomputation rebuilds one layer at a time
    return kept * load.micro_batches_in_flight + np.where(full, rebuilt, 0.0)


def working_bytes(x: LayoutColumns, job: Job) -> Floats:
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


def logits_bytes(x: LayoutColumns, job: Job) -> Floats:
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


def _has_scores(x: LayoutColumns) -> Booleans:
    """Whether the attention kernel keeps its scores in memory."""
    scores: Booleans = np.isin(x.attention_kernel, (AttentionKernel.MATH, AttentionKernel.FUSED_SOFTMAX))
    return scores
