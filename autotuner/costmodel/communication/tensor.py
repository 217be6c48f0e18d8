"""Collectives of the tensor group inside a micro-batch's passes."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.measured import without_starts
from autotuner.costmodel.communication.overlap import exposed_s
from autotuner.costmodel.communication.process_groups import tensor_group
from autotuner.costmodel.micro_batch import gathers_logits, hidden_bytes, tokens_per_pass
from autotuner.costmodel.narrow import sent_share
from autotuner.costmodel.routing import width_split


def layer_tensor_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """One pass through a layer: an all-reduce after attention and one after the feed-forward block.

    With sequence parallelism each becomes a reduce-scatter and an all-gather (arXiv 2205.05198, section 4.2.2); what is
    gathered for a product in 8 bits may be rounded before. Ranks with whole experts, each with tokens of its own, have
    nothing to sum; where they share hidden states no longer than that, they gather the answers. Shared experts are
    split like a dense block.
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
"""Share of the seconds that async tensor parallelism could hide which it does hide: smaller products, and copies that
take memory bandwidth from them, eat the rest. Three pairs of runs of torchtitan with and without it, 8 of 64 H100 in a
group, save 36, 30 and 24 % of what their tensor collectives take by these laws, which could save 84 %."""


def exposed_tensor_s(x: LayoutColumns, tensor_s: Floats, products_s: Floats, share: float) -> Floats:
    """What of a pass's tensor collectives the products next to them leave exposed.

    Nothing hides a collective that a product waits for; unless they are cut into as many parts as there are tensor
    ranks, each part of the collective beside the product of another part, so that one part finds nothing to hide under
    ("Introducing Async Tensor Parallelism in PyTorch", 2024; user buffers of Transformer Engine).

    Args:
        x: Layouts.
        tensor_s: The pass's collectives.
        products_s: The pass's products.
        share: Share of the products under which they make progress, in a layout that does not ask for it.
    """
    if not (share or x.async_tensor_parallel.any()):
        return tensor_s
    num_parts = x.tensor_parallel_degree.astype(np.float64)
    hidden_s = tensor_s - exposed_s(tensor_s, products_s, num_parts)
    asked = np.where(x.async_tensor_parallel, ASYNC_SHARE * hidden_s, 0.0)
    return tensor_s - np.maximum(asked, tensor_s - exposed_s(tensor_s, share * products_s, num_parts))


def end_of_model_s(x: LayoutColumns, job: Job) -> Floats:
    """The tensor ranks' sum of looked-up states where the model begins, or of their gradients where it ends."""
    return all_reduce_s(hidden_bytes(x, job), _group(x, job))


def logits_gather_s(x: LayoutColumns, job: Job) -> Floats:
    """All-gather of the logits over the tensor ranks, where the layout or the stack wants them whole."""
    logits_bytes = x.element_bytes * tokens_per_pass(x, job) * job.model.vocab_size * gathers_logits(x, job)
    return all_gather_s(logits_bytes, _group(x, job)) * (x.tensor_parallel_degree > 1)


def _group(x: LayoutColumns, job: Job) -> Group:
    """Tensor ranks; on cores the start of their collectives is part of what splitting a layer adds (``SplitTimes``)."""
    group = tensor_group(x, job.cluster)
    return without_starts(group) if job.cluster.accelerator.core else group
