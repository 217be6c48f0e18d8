"""Exposed collectives of a layer, among tensor, context and expert ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from autotuner.core.accelerator import Accelerator
from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ContextExchange
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
    send_s,
    without_starts,
)
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import context_group, expert_group, tensor_group
from autotuner.costmodel.shared.low_precision import sent_share
from autotuner.costmodel.shared.micro_batch import (
    gathers_logits,
    hidden_bytes,
    own_copies,
    own_tokens,
    tokens_per_pass,
    width_split,
)


def overlap_share(accelerator: Accelerator) -> float:
    """Return the share of computing time during which a collective can make progress.

    The share is 1 on GPUs, whose copy engines and network cards work at the same time as the matrix units. It is 0 on a
    CPU, where the core that computes also moves the bytes.
    """
    return 0.0 if accelerator.kind == "cpu" else 1.0


def exposed_s(wire_s: Floats, window_s: Floats, num_parts: Floats) -> Floats:
    """Return the seconds that a collective adds to a computation, if both are cut into the same number of equal parts.

    The result is exact for two usual ways to overlap. In a bucketed reduction, part i starts when part i of the
    backward pass is done (arXiv 2006.15704, section 3.2). In a prefetched gather, part i + 1 runs during part i of the
    computation (arXiv 2304.11277, section 3.3). No computation hides the last part of a reduction or the first part of
    a gather. Each other part is exposed by the time for which it outlasts its part of the computation.

    Args:
        wire_s: Wire time of all parts together.
        window_s: Time of the computation of all parts together, without collectives.
        num_parts: Number of parts, 1 or more.

    Example:
        >>> exposed_s(np.array([1.0]), np.array([10.0]), np.array([4.0])).tolist()
        [0.25]
    """
    return (wire_s + (num_parts - 1) * np.maximum(wire_s - window_s, 0.0)) / num_parts


def layer_tensor_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Return the seconds that the collectives among tensor ranks take in one pass through a layer, before any overlap.

    There is an all-reduce after attention and one after the MLP. With sequence parallelism each of them becomes a
    reduce-scatter and an all-gather (arXiv 2205.05198, section 4.2.2). Values that are gathered for a product in 8 bits
    may be rounded before the gather. Tensor ranks that hold whole experts have nothing to sum, because each rank has
    its own tokens. Without sequence parallelism these ranks gather the results of all tokens instead. Shared experts
    are split like a dense block.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    summed_bytes, group = hidden_bytes(x, job), _group(x, job)
    whole_s, gather_s = all_reduce_s(summed_bytes, group), all_gather_s(summed_bytes, group)
    split_s = reduce_scatter_s(summed_bytes, group) + all_gather_s(summed_bytes * sent_share(x, job), group)
    attention_s = np.where(x.sequence_parallel, split_s, whole_s)
    if not (sparse and job.model.experts):
        return 2 * attention_s
    routed_s = np.where(x.sequence_parallel, 0.0, gather_s * (x.tensor_parallel_degree > 1))
    shared_s = attention_s * (job.model.experts.num_shared_experts > 0)
    sums_routed = (width_split(x, job) == x.tensor_parallel_degree) & ~(
        x.sequence_parallel & (x.expert_parallel_degree > 1)  # the dispatch gathers copies, and sums them
    )
    return attention_s + np.where(sums_routed, attention_s, routed_s + shared_s)


ASYNC_SHARE = 0.37
"""Share of the theoretically hidden time that async tensor parallelism hides in practice. Smaller products, and copies
that compete for memory bandwidth, lose the rest. Three pairs of torchtitan runs with and without it, with groups of 8
of 64 H100, save 36, 30 and 24 % of the time of their tensor collectives by these formulas. In theory they could save 84
%."""


def exposed_tensor_s(x: LayoutColumns, tensor_s: Floats, products_s: Floats, share: float) -> Floats:
    """Return the seconds of collectives among tensor ranks in one pass that neighbouring matrix products do not hide.

    A collective is exposed if a product waits for it. With async tensor parallelism, both are cut into as many parts as
    there are tensor ranks. Then each part of the collective runs during another part of the product, so that only one
    part is exposed ("Introducing Async Tensor Parallelism in PyTorch", 2024; user buffers of Transformer Engine).

    Args:
        x: Layouts.
        tensor_s: Seconds of the pass's collectives.
        products_s: Seconds of the pass's products.
        share: Share of the products' time in which collectives make progress without async tensor parallelism.
    """
    if not (share or x.async_tensor_parallel.any()):
        return tensor_s
    num_parts = x.tensor_parallel_degree.astype(np.float64)
    hidden_s = tensor_s - exposed_s(tensor_s, products_s, num_parts)
    asked = np.where(x.async_tensor_parallel, ASYNC_SHARE * hidden_s, 0.0)
    return tensor_s - np.maximum(asked, tensor_s - exposed_s(tensor_s, share * products_s, num_parts))


def end_of_model_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds of the all-reduce over tensor ranks that runs at the beginning and at the end of the model.

    In the forward pass it sums the outputs of the embedding. In the backward pass it sums the gradients of the output
    projection's input.
    """
    return all_reduce_s(hidden_bytes(x, job), _group(x, job))


def logits_gather_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds to gather all logits on every tensor rank; 0 if each tensor rank keeps only its part."""
    logits_bytes = x.element_bytes * tokens_per_pass(x, job) * job.model.vocab_size * gathers_logits(x, job)
    return all_gather_s(logits_bytes, _group(x, job)) * (x.tensor_parallel_degree > 1)


def _group(x: LayoutColumns, job: Job) -> Group:
    """Return the tensor group.

    On CPU cores it has no start time, because ``SplitTimes`` contains the start of collectives.
    """
    group = tensor_group(x, job.cluster)
    return without_starts(group) if job.cluster.accelerator.core else group


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeTimes:
    """The seconds for which one layer's attention waits for other context ranks, in its forward and backward pass."""

    forward_s: Floats
    backward_s: Floats


def exchange_times(x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats) -> ExchangeTimes:
    """Return the seconds for which one layer's attention waits for other context ranks; 0 without context parallelism.

    The layout chooses how context ranks exchange keys and values: by a ring, an all-gather, or an all-to-all of heads.

    Args:
        x: Layouts.
        job: The job.
        forward_s: Seconds of the attention core's forward pass.
        backward_s: Seconds of the attention core's backward pass.
    """
    if not (x.context_parallel_degree > 1).any():  # in most tables no layout splits the sequence: return early
        return ExchangeTimes(forward_s=np.zeros(len(x)), backward_s=np.zeros(len(x)))
    ways = (_ring(x, job, forward_s, backward_s), _gather(x, job), _heads(x, job))
    chosen = [x.context_exchange == way for way in ContextExchange]
    alone = x.context_parallel_degree == 1
    return ExchangeTimes(
        forward_s=np.where(alone, 0.0, np.select(chosen, [way.forward_s for way in ways])),
        backward_s=np.where(alone, 0.0, np.select(chosen, [way.backward_s for way in ways])),
    )


def _ring(x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats) -> ExchangeTimes:
    """Return the times of ring attention: ``c - 1`` sends of blocks, each hidden by attention to the previous block.

    In the backward pass their gradients are sent too, and need one more send to return to their rank (arXiv 2310.01889,
    section 3).
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
    """Return the times of one collective of keys and values before attention, and one of their gradients after it.

    Latency matters little here, since attention grows with the square of the sequence (arXiv 2407.21783, section
    3.3.2).
    """
    group, gathered = context_group(x, job.cluster), _key_values(x, job) * x.context_parallel_degree
    return ExchangeTimes(
        forward_s=all_gather_s(gathered * x.element_bytes, group),
        backward_s=reduce_scatter_s(gathered * _sum_bytes(x, job), group),
    )


def _heads(x: LayoutColumns, job: Job) -> ExchangeTimes:
    """Return the times of all-to-alls that exchange heads for parts of the sequence (arXiv 2309.14509, section 3.2)."""
    model, group = job.model, context_group(x, job.cluster)
    per_token = (model.query_size, model.key_value_size / 2, model.key_value_size / 2, model.attention_output_size)
    local_bytes = x.element_bytes * tokens_per_pass(x, job) / x.tensor_parallel_degree
    seconds: Floats = reduce(np.add, (all_to_all_s(local_bytes * size, group) for size in per_token))
    return ExchangeTimes(forward_s=seconds, backward_s=seconds)


def _sum_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Return the bytes per element of the gradients of keys and values that context ranks send to each other.

    Every rank adds to these gradients, and would round the sum in bf16. So the trial job sends fp32
    (``trials/distributed/context``), as PyTorch's context parallelism (``convert_to_f32``) and ring-flash-attention do;
    Transformer Engine, which NeMo runs, sends bf16.
    """
    return np.full(len(x), 4.0) if job.stack.widens_context_gradients else x.element_bytes


def _key_values(x: LayoutColumns, job: Job) -> Floats:
    """Return the number of elements of a layer's keys and values for the tokens of one rank."""
    size: Floats = tokens_per_pass(x, job) * job.model.key_value_size / x.tensor_parallel_degree
    return size


def dispatch_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds to send tokens to the ranks of their experts and back, in one pass through a sparse layer.

    This is the time on the wire, before any overlap; 0 if the model has no experts.
    """
    experts = job.model.experts
    if experts is None or not (x.expert_parallel_degree * (1 + job.stack.splits_experts) > 1).any():
        return np.zeros(len(x))
    group = expert_group(x, job)
    token_bytes = x.element_bytes * job.model.hidden_size
    if job.stack.dispatch == "all_gather":
        gathered = token_bytes * own_tokens(x, job) * x.expert_parallel_degree
        between_s = all_gather_s(gathered, group) + reduce_scatter_s(gathered, group)
    else:
        between_s = 2 * _all_to_all_s(x, job, experts, group, token_bytes)
    between_s = np.where(x.expert_parallel_degree > 1, between_s, 0.0)
    return between_s + _split_experts_s(x, job, experts, token_bytes)


def _all_to_all_s(x: LayoutColumns, job: Job, experts: MixtureOfExperts, group: Group, token_bytes: Floats) -> Floats:
    """Return the time of one dispatch on the rank with most tokens.

    A token is sent once per expert, or once per rank or node. Of ``n`` equally likely places, ``k`` choices of a token
    select ``n (1 - (1 - 1 / n)^k)`` different places.
    """
    copies, chosen = own_copies(x, job, experts), experts.experts_per_token
    sent_bytes = token_bytes * copies
    if job.stack.dispatch == "all_to_all":
        return all_to_all_s(sent_bytes, group)
    to_ranks = _different(group.num_ranks, chosen) / chosen
    to_nodes = _different(group.num_nodes, chosen) / chosen
    return all_to_all_s(sent_bytes * to_ranks, group, outside=to_nodes / to_ranks)


def _different(places: Integers, choices: int) -> Floats:
    number: Floats = places * (1 - (1 - 1 / places) ** choices)
    return number


def _split_experts_s(x: LayoutColumns, job: Job, experts: MixtureOfExperts, token_bytes: Floats) -> Floats:
    """Return the time in which tensor ranks that split experts gather each other's tokens and sum the outputs.

    Megatron-LM's all-to-all dispatcher, core 0.13: ``token_permutation`` gathers the received tokens over the expert
    tensor group. Without sequence parallelism every tensor rank has all tokens from the start, and the sum is that of
    the feed-forward block (``communication.tensor``).
    """
    gathers = (width_split(x, job) > 1) & x.sequence_parallel & (x.expert_parallel_degree > 1)
    if not gathers.any():
        return np.zeros(len(x))
    group = tensor_group(x, job.cluster)
    whole = token_bytes * own_copies(x, job, experts) * x.tensor_parallel_degree
    seconds: Floats = np.where(gathers, all_gather_s(whole, group) + reduce_scatter_s(whole, group), 0.0)
    return seconds


def exposed_dispatch_s(job: Job, sent_s: Floats, computed_s: Floats) -> Floats:
    """Return the seconds of token dispatch in one pass that the computation of another micro-batch does not hide.

    The forward pass of one micro-batch runs at the same time as the backward pass of another (arXiv 2412.19437, section
    3.2.1: DualPipe; Megatron-LM's ``overlap_moe_expert_parallel_comm`` does so within 1F1B).

    Args:
        job: Job, whose stack states the share of the dispatch that it can hide.
        sent_s: Seconds of the dispatch (``dispatch_s``).
        computed_s: Seconds of computation that can hide it.
    """
    return sent_s - np.minimum(job.stack.hides_dispatch * sent_s, computed_s)
