"""What of a micro-batch one rank sees: its tokens, its hidden states, its logits."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.sequences import tokens_per_sequence


def tokens_per_pass(x: LayoutColumns, job: Job) -> Floats:
    """Tokens of one micro-batch on one rank: the context group splits them, the tensor group sees them all.

    Where sequences differ, an average one of the rank that a step waits for.
    """
    return x.micro_batch_size * (tokens_per_sequence(x, job) / x.context_parallel_degree)


def hidden_bytes(x: LayoutColumns, job: Job) -> Floats:
    """The hidden states of all these tokens, between two blocks."""
    return x.element_bytes * tokens_per_pass(x, job) * job.model.hidden_size


def hidden_split(x: LayoutColumns) -> Integers:
    """Ways in which hidden states are split, where norms and residual sums work on them."""
    return np.where(x.sequence_parallel, x.tensor_parallel_degree, 1)


def logits_split(x: LayoutColumns, job: Job) -> Integers:
    """Ways in which logits are split."""
    return np.where(gathers_logits(x, job), 1, x.tensor_parallel_degree)


def gathers_logits(x: LayoutColumns, job: Job) -> Booleans:
    """Whether every tensor rank gets all logits, because the layout or the stack wants them whole."""
    gathers: Booleans = (~x.loss_parallel | job.stack.gathers_logits) & (x.tensor_parallel_degree > 1)
    return gathers
