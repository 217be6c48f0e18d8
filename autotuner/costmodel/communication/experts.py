"""What sending tokens to their experts and back takes."""

from __future__ import annotations

import numpy as np

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.collectives import all_gather_s, all_to_all_s, reduce_scatter_s
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.process_groups import expert_group, tensor_group
from autotuner.costmodel.routing import own_copies, own_tokens, width_split


def dispatch_s(x: LayoutColumns, job: Job) -> Floats:
    """One pass through a sparse layer: tokens to the ranks of their experts, and answers back."""
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
    """One way, with what the fullest rank gets: each copy by itself, or one for all experts of a rank or node.

    Of ``n`` equally likely places, ``k`` choices of a token name ``n (1 - (1 - 1 / n)^k)`` different ones.
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
    """Tensor ranks that split experts gather each other's copies and sum the answers to them.

    Megatron-LM's all-to-all dispatcher, core 0.13: ``token_permutation`` gathers over the expert tensor group what has
    arrived. Without sequence parallelism every tensor rank has all tokens from the start, and the sum is that of the
    feed-forward block (``communication.tensor``).
    """
    gathers = (width_split(x, job) > 1) & x.sequence_parallel & (x.expert_parallel_degree > 1)
    if not gathers.any():
        return np.zeros(len(x))
    group = tensor_group(x, job.cluster)
    whole = token_bytes * own_copies(x, job, experts) * x.tensor_parallel_degree
    seconds: Floats = np.where(gathers, all_gather_s(whole, group) + reduce_scatter_s(whole, group), 0.0)
    return seconds


def exposed_dispatch_s(job: Job, sent_s: Floats, computed_s: Floats) -> Floats:
    """What of the dispatch of one pass the computation of another micro-batch leaves exposed.

    Forward of one micro-batch runs beside backward of another (arXiv 2412.19437, section 3.2.1: DualPipe; Megatron-LM's
    ``overlap_moe_expert_parallel_comm`` does so within 1F1B).
    """
    return sent_s - np.minimum(job.stack.hides_dispatch * sent_s, computed_s)
