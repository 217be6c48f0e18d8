"""Collectives inside a micro-batch's passes: those of the tensor and expert groups."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s
from autotuner.costmodel.communication.overlap import exposed_s
from autotuner.costmodel.communication.process_groups import expert_group, tensor_group
from autotuner.costmodel.micro_batch import gathers_logits, hidden_bytes, tokens_per_pass
from autotuner.domain.jobs.job import Job

__all__ = ["dispatch_s", "end_of_model_s", "exposed_tensor_s", "layer_tensor_s", "logits_gather_s"]


def layer_tensor_s(x: LayoutColumns, job: Job) -> Floats:
    """One pass through a layer: an all-reduce after attention and one after the feed-forward block.

    With sequence parallelism each becomes a reduce-scatter and an all-gather (arXiv 2205.05198, section 4.2.2).
    """
    summed_bytes, group = hidden_bytes(x, job), tensor_group(x, job.cluster)
    whole_s = all_reduce_s(summed_bytes, group)
    split_s = reduce_scatter_s(summed_bytes, group) + all_gather_s(summed_bytes, group)
    return 2 * np.where(x.sequence_parallel, split_s, whole_s)


def exposed_tensor_s(x: LayoutColumns, tensor_s: Floats, products_s: Floats) -> Floats:
    """What of a pass's tensor collectives the products next to them leave exposed.

    Nothing hides a collective that a product waits for; unless they are cut into as many parts as there are tensor
    ranks, each part of the collective beside the product of another part, so that one part finds nothing to hide under
    ("Introducing Async Tensor Parallelism in PyTorch", 2024). Smaller products are not counted as slower.
    """
    if not x.async_tensor_parallel.any():
        return tensor_s
    num_parts = x.tensor_parallel_degree.astype(np.float64)
    return np.where(x.async_tensor_parallel, exposed_s(tensor_s, products_s, num_parts), tensor_s)


def end_of_model_s(x: LayoutColumns, job: Job) -> Floats:
    """The tensor ranks' sum of looked-up states where the model begins, or of their gradients where it ends."""
    return all_reduce_s(hidden_bytes(x, job), tensor_group(x, job.cluster))


def logits_gather_s(x: LayoutColumns, job: Job) -> Floats:
    """All-gather of the logits over the tensor ranks, where the layout or the stack wants them whole."""
    logits_bytes = x.element_bytes * tokens_per_pass(x, job) * job.model.vocab_size * gathers_logits(x, job)
    return all_gather_s(logits_bytes, tensor_group(x, job.cluster)) * (x.tensor_parallel_degree > 1)


def dispatch_s(x: LayoutColumns, job: Job) -> Floats:
    """Two all-to-alls of a pass through a sparse layer: tokens to their experts and back, each sent top-k times."""
    if job.model.experts is None:
        return np.zeros(len(x))
    tokens = tokens_per_pass(x, job) / x.tensor_parallel_degree * job.model.experts.experts_per_token
    sent_bytes = x.element_bytes * tokens * job.model.hidden_size
    return 2 * all_to_all_s(sent_bytes, expert_group(x, job.cluster))
