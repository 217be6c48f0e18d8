"""What a layer saves where its software keeps the inputs of products rounded to 8 bits or fewer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.recompute import LayerPart
from autotuner.costmodel.micro_batch import hidden_split, tokens_per_pass
from autotuner.costmodel.narrow import saved_share
from autotuner.costmodel.routing import load_factor


def with_rounded_inputs(
    parts: Mapping[LayerPart, Floats], x: LayoutColumns, job: Job, *, sparse: bool
) -> dict[LayerPart, Floats]:
    """The parts of a layer with each product's input as wide as it is kept for the gradient of the weight.

    The inputs of both blocks and what ends the feed-forward block are kept rounded and no more in 16 bits. The output
    of the attention core, which its own backward reads, is kept both ways; inputs of gates and norms feed no product.
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
    """Copies of tokens and inner activations of experts; the router reads the block's input in 16 bits."""
    model, experts = job.model, job.model.experts
    assert experts is not None
    one = less / x.tensor_parallel_degree
    copies = one * experts.experts_per_token * load_factor(x, job, experts)
    return {
        LayerPart.ROUTING: -copies * model.hidden_size,
        LayerPart.EXPERT_ACTIVATION: -copies * experts.expert_ffn_size,
        LayerPart.SHARED_EXPERTS: -one * experts.shared_ffn_size,
    }
