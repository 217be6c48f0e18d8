"""How the ranks of a context group meet in attention, and how much of that their own computation hides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from autotuner.core.choices import ContextExchange
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.collectives import all_gather_s, all_to_all_s, reduce_scatter_s, send_s
from autotuner.costmodel.communication.overlap import overlap_share
from autotuner.costmodel.communication.process_groups import context_group
from autotuner.costmodel.micro_batch import tokens_per_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTimes:
    """Exposed seconds of one layer's exchange."""

    forward_s: Floats
    backward_s: Floats


def exchange_times(x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats) -> ExchangeTimes:
    """What a layer's attention core waits for the other ranks of its context group; nothing where there are none.

    Args:
        x: Layouts.
        job: The job.
        forward_s: Forward pass of the attention core.
        backward_s: Its backward pass.
    """
    if not (x.context_parallel_degree > 1).any():  # the usual table, at no cost
        return ExchangeTimes(forward_s=np.zeros(len(x)), backward_s=np.zeros(len(x)))
    ways = (_ring(x, job, forward_s, backward_s), _gather(x, job), _heads(x, job))
    chosen = [x.context_exchange == way for way in ContextExchange]
    alone = x.context_parallel_degree == 1
    return ExchangeTimes(
        forward_s=np.where(alone, 0.0, np.select(chosen, [way.forward_s for way in ways])),
        backward_s=np.where(alone, 0.0, np.select(chosen, [way.backward_s for way in ways])),
    )


def _ring(x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats) -> ExchangeTimes:
    """Blocks of keys and values go round in ``c - 1`` sends, each under the attention to the block before it.

    Backward their gradients travel beside them and take one send more to come home (arXiv 2310.01889, section 3).
    """
    group, ranks = context_group(x, job.cluster), x.context_parallel_degree.astype(np.float64)
    block_bytes, sums_bytes = _key_values(x, job) * x.element_bytes, _key_values(x, job) * _sum_bytes(x, job)
    once_s, beside_s, home_s = (send_s(sent, group) for sent in (block_bytes, block_bytes + sums_bytes, sums_bytes))
    share = overlap_share(job.cluster.accelerator)
    return ExchangeTimes(
        forward_s=(ranks - 1) * np.maximum(once_s - share * forward_s / ranks, 0.0),
        backward_s=(ranks - 1) * np.maximum(beside_s - share * backward_s / ranks, 0.0) + home_s,
    )


def _gather(x: LayoutColumns, job: Job) -> ExchangeTimes:
    """All keys and values in one collective before the attention, and their gradients in one behind it.

    arXiv 2407.21783, section 3.3.2: latency matters little, since attention grows with the square of the sequence.
    """
    group, gathered = context_group(x, job.cluster), _key_values(x, job) * x.context_parallel_degree
    return ExchangeTimes(
        forward_s=all_gather_s(gathered * x.element_bytes, group),
        backward_s=reduce_scatter_s(gathered * _sum_bytes(x, job), group),
    )


def _heads(x: LayoutColumns, job: Job) -> ExchangeTimes:
    """All-to-alls of queries, keys, values and outputs: heads for sequence and back (arXiv 2309.14509, section 3.2)."""
    model, group = job.model, context_group(x, job.cluster)
    per_token = (model.query_size, model.key_value_size / 2, model.key_value_size / 2, model.attention_output_size)
    local_bytes = x.element_bytes * tokens_per_pass(x, job) / x.tensor_parallel_degree
    seconds: Floats = reduce(np.add, (all_to_all_s(local_bytes * size, group) for size in per_token))
    return ExchangeTimes(forward_s=seconds, backward_s=seconds)


def _sum_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Bytes of the gradient of a key or value on its way. Every rank adds to it, and would round the sum to bf16 again.

    So the trial job sends fp32 (``trials/distributed/context``), as PyTorch's context parallelism (``convert_to_f32``)
    and ring-flash-attention do; Transformer Engine, which NeMo runs, sends bf16.
    """
    return np.full(len(x), 4.0) if job.stack.widens_context_gradients else x.element_bytes


def _key_values(x: LayoutColumns, job: Job) -> Floats:
    """Elements of a layer's keys and values of the tokens of one rank."""
    size: Floats = tokens_per_pass(x, job) * job.model.key_value_size / x.tensor_parallel_degree
    return size
