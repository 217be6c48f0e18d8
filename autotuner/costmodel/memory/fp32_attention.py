"""Attention that PyTorch composes of products and a softmax: the kernel ``math``, in fp32 whatever the format.

``_scaled_dot_product_attention_math`` (aten/src/ATen/native/transformers/attention.cpp, torch 2.13) converts 16-bit
inputs to fp32 unless ``ctx.allowFP16BF16ReductionMathSDP()``. Between context ranks that exchange keys and values the
trial job composes blocks itself, whose scores its backward computes again (``trials/distributed/context``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotuner.core.choices import AttentionKernel, ContextExchange
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.recompute import LayerPart
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split, tokens_per_pass

_SCORES_ALIVE = 2.0
"""Gradients of one layer's scores, behind the softmax and before it; what the softmax gave is kept."""

_BLOCK_SCORES_ALIVE = 4.0
"""Exponentiated scores, their gradient, the same less the softmax's own part, and the product of both
(``_math_backward`` of trials/distributed/context/block_attention.py)."""


def with_fp32_attention(parts: Mapping[LayerPart, Floats], x: LayoutColumns, job: Job) -> dict[LayerPart, Floats]:
    """The parts of a layer as a plain backward pass finds them, where the attention core is composed in fp32."""
    composed, blocks = _is_composed(x, job), _in_blocks(x)
    whole, changed = composed & ~blocks, dict(parts)
    each = 4.0 * tokens_per_pass(x, job) * job.model.query_size / x.tensor_parallel_degree
    if job.model.latent_attention is None:
        for part in (LayerPart.QUERY, LayerPart.KEY, LayerPart.VALUE):
            changed[part] = np.where(whole, each, parts[part])
    scores = parts[LayerPart.SCORES]
    changed[LayerPart.SCORES] = np.where(composed, np.where(blocks, 0.0, 4.0 / x.element_bytes * scores), scores)
    # what context ranks give is put in order: the product after it reads another tensor than the core's backward
    again = job.stack.widens_context_gradients & (x.context_parallel_degree > 1) & ~whole
    changed[LayerPart.CORE] = np.where(again, 2.0, 1.0) * parts[LayerPart.CORE]
    return changed


def core_bytes(x: LayoutColumns, job: Job) -> Floats:
    """What the backward pass of a composed core works with, and the gradient of the residual stream; else nothing."""
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
    """Whether keys and values come to the queries of a context rank, and not heads."""
    blocks: Booleans = (x.context_parallel_degree > 1) & (x.context_exchange != ContextExchange.ALL_TO_ALL)
    return blocks
