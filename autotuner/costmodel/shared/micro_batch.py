"""The part of a micro-batch on one rank, and the tokens of each expert."""

from __future__ import annotations

import numpy as np

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.shared.sequences import tokens_per_sequence

_ROW_BLOCK = 16
"""Number of which the rows of an expert are padded to a multiple: Transformer Engine pads to 16 for fp8
(``Fp8Padding``, 2.4), and blocks of 16-bit products have 16 rows or more."""


def width_split(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of tensor ranks that split each expert; 1 if every expert rank holds whole experts."""
    whole = (x.expert_parallel_degree > 1) & (not job.stack.splits_experts)
    return np.where(whole, 1, x.tensor_parallel_degree)


def local_experts(x: LayoutColumns, experts: MixtureOfExperts) -> Floats:
    """Return the number of experts per layer on one rank. An expert that tensor ranks split counts on each of them."""
    held: Floats = experts.num_experts / x.expert_parallel_degree
    return held


def own_tokens(x: LayoutColumns, job: Job) -> Floats:
    """Return the number of tokens of a micro-batch for which one rank chooses experts.

    With sequence parallelism, tensor ranks divide the tokens among them. Tensor ranks that hold whole experts (and so
    are expert ranks, too) always divide the tokens.
    """
    shared = np.maximum(hidden_split(x), x.tensor_parallel_degree // width_split(x, job))
    tokens: Floats = tokens_per_pass(x, job) / shared
    return tokens


def own_copies(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the number of token copies that one rank sends to experts in a micro-batch.

    A token is copied once for each of its experts. The number counts the load of the fullest rank (``load_factor``),
    because the dispatch lasts until that rank has its copies.
    """
    copies: Floats = own_tokens(x, job) * experts.experts_per_token * load_factor(x, job, experts)
    return copies


def rows_per_expert(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the number of rows (token copies) that each expert of the fullest rank multiplies in a micro-batch.

    The rows come from all ranks of the expert group. The number is rounded up to a multiple of ``_ROW_BLOCK``, because
    kernels process the rows of an expert in blocks.
    """
    tokens = tokens_per_pass(x, job) * x.expert_parallel_degree * width_split(x, job) / x.tensor_parallel_degree
    rows = tokens * experts.experts_per_token / experts.num_experts * load_factor(x, job, experts)
    return _ROW_BLOCK * np.ceil(rows / _ROW_BLOCK)


def load_factor(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the load of the fullest rank: the rows that its experts multiply, divided by the average rank's rows.

    Every collective of a layer with experts waits for the fullest rank. The more experts a rank holds, the closer its
    load is to the average: the excess falls as for a sum of independent loads. A rank that holds all experts has the
    average load. A capacity factor limits the load. If experts are padded up to their capacity, the load is always the
    capacity factor.
    """
    if experts.capacity_factor is not None and experts.pads_to_capacity:
        return np.full(len(x), experts.capacity_factor)
    excess = (job.stack.expert_imbalance - 1) / np.sqrt(local_experts(x, experts))
    load = np.where(x.expert_parallel_degree > 1, 1 + excess, 1.0)
    return load if experts.capacity_factor is None else np.minimum(load, experts.capacity_factor)


def tokens_per_pass(x: LayoutColumns, job: Job) -> Floats:
    """Return the number of tokens of one micro-batch on one rank. Context ranks divide the tokens, tensor ranks do not.

    If sequences have different lengths, the number counts the average sequence of the slowest rank, because the step
    waits for that rank.
    """
    return x.micro_batch_size * (tokens_per_sequence(x, job) / x.context_parallel_degree)


def hidden_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes of the hidden states between two blocks, for the tokens that a rank has in one micro-batch.

    Tensor ranks may divide these bytes further: see ``hidden_split``.
    """
    return x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size


def hidden_split(x: LayoutColumns) -> Integers:
    """Return the number of tensor ranks that divide the hidden states in norms and residual sums.

    Without sequence parallelism the number is 1, because each tensor rank has all hidden states.
    """
    return np.where(x.sequence_parallel, x.tensor_parallel_degree, 1)


def logits_split(x: LayoutColumns, job: Job) -> Integers:
    """Return the number of tensor ranks that divide the logits among them; 1 if every rank has all logits."""
    return np.where(gathers_logits(x, job), 1, x.tensor_parallel_degree)


def gathers_logits(x: LayoutColumns, job: Job) -> Booleans:
    """Return a mask over the layouts: True where every tensor rank gets all logits.

    Either the layout asks for it (no loss parallelism), or the stack always does so.
    """
    gathers: Booleans = (~x.loss_parallel | job.stack.gathers_logits) & (x.tensor_parallel_degree > 1)
    return gathers
