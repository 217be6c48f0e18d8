"""The part of a micro-batch on one rank, and the tokens of each expert."""

from __future__ import annotations

import numpy as np

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.sequences import tokens_per_sequence

_ROW_BLOCK = 16
"""Number of rows that an expert's rows are padded to: Transformer Engine pads to 16 for fp8 (``Fp8Padding``, 2.4), and
blocks of 16-bit products are that or more."""


def width_split(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of tensor ranks that split each expert; 1 if expert ranks hold whole experts."""
    whole = (x.expert_parallel_degree > 1) & (not job.stack.splits_experts)
    return np.where(whole, 1, x.tensor_parallel_degree)


def local_experts(x: LayoutColumns, experts: MixtureOfExperts) -> Floats:
    """Return the number of experts of a layer that one rank holds, or holds a part of."""
    held: Floats = experts.num_experts / x.expert_parallel_degree
    return held


def own_tokens(x: LayoutColumns, job: Job) -> Floats:
    """Return the tokens of a micro-batch that one rank routes. Tensor ranks share them if they share hidden states.

    Expert ranks that hold whole experts are tensor ranks, too, and share the tokens in any case.
    """
    shared = np.maximum(hidden_split(x), x.tensor_parallel_degree // width_split(x, job))
    tokens: Floats = tokens_per_pass(x, job) / shared
    return tokens


def own_copies(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the copies of its tokens that one rank sends to experts; the fullest rank receives as many."""
    copies: Floats = own_tokens(x, job) * experts.experts_per_token * load_factor(x, job, experts)
    return copies


def rows_per_expert(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the rows of a micro-batch that each expert of the fullest rank multiplies, from all its expert ranks.

    A whole number of ``_ROW_BLOCK``: kernels take the rows of an expert in blocks, and no law knows fractions.
    """
    tokens = tokens_per_pass(x, job) * x.expert_parallel_degree * width_split(x, job) / x.tensor_parallel_degree
    rows = tokens * experts.experts_per_token / experts.num_experts * load_factor(x, job, experts)
    return _ROW_BLOCK * np.ceil(rows / _ROW_BLOCK)


def load_factor(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the rows that the experts of the fullest rank multiply, divided by those of an average rank.

    Every collective of a sparse layer waits for the fullest rank. Loads of several experts on a rank even out as sums
    of independent ones do; a rank that holds all of them has the average. A capacity bounds the load, and is the load
    where all experts are filled up to it.
    """
    if experts.capacity_factor is not None and experts.pads_to_capacity:
        return np.full(len(x), experts.capacity_factor)
    excess = (job.stack.expert_imbalance - 1) / np.sqrt(local_experts(x, experts))
    load = np.where(x.expert_parallel_degree > 1, 1 + excess, 1.0)
    return load if experts.capacity_factor is None else np.minimum(load, experts.capacity_factor)


def tokens_per_pass(x: LayoutColumns, job: Job) -> Floats:
    """Return the tokens of one micro-batch on one rank. Context ranks split them, tensor ranks do not.

    Where sequences differ, an average one of the rank that a step waits for.
    """
    return x.micro_batch_size * (tokens_per_sequence(x, job) / x.context_parallel_degree)


def hidden_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of the hidden states of these tokens, between two blocks."""
    return x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size


def hidden_split(x: LayoutColumns) -> Integers:
    """Return the number of parts of hidden states that norms and residual sums work on."""
    return np.where(x.sequence_parallel, x.tensor_parallel_degree, 1)


def logits_split(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of parts of the logits."""
    return np.where(gathers_logits(x, job), 1, x.tensor_parallel_degree)


def gathers_logits(x: LayoutColumns, job: Job) -> Booleans:
    """Return the layouts in which every tensor rank gets all logits, because the layout or the stack wants it."""
    gathers: Booleans = (~x.loss_parallel | job.stack.gathers_logits) & (x.tensor_parallel_degree > 1)
    return gathers
