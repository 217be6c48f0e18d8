"""Work of one micro-batch in a layer, in the embedding and in the loss.

The time of matrix products and attention cores is computed from their shapes by the formulas of ``matrix_products`` and
``attention``, for the clock that the device sustains. Operations between them take the time of moving memory. Kernels
shorter than a launch wait for the host. Collectives and copies to the host inside the passes count here too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import ContextExchange
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.layer_collectives import (
    dispatch_s,
    end_of_model_s,
    exchange_times,
    exposed_dispatch_s,
    exposed_tensor_s,
    layer_tensor_s,
    logits_gather_s,
    overlap_share,
)
from autotuner.costmodel.layer.attention import AttentionShape, attention_s
from autotuner.costmodel.layer.host import (
    dispatch_wait_s,
    ends_host_s,
    host_wait_s,
    launches_s,
    layer_host_s,
    recompute_host_s,
)
from autotuner.costmodel.layer.matrix_products import by_precision, layer_matrix_s, projection_s
from autotuner.costmodel.layer.memory_bound import HOST_LINK_EFFICIENCY, lookup_s, loss_s, pointwise_s
from autotuner.costmodel.layer.recompute import (
    ForwardTimes,
    collectives_again,
    recompute_s,
    repeats_core,
    repeats_routing,
)
from autotuner.costmodel.layer.work import Work
from autotuner.costmodel.memory.activations import LayerBytes, has_scores
from autotuner.costmodel.shared.sequences import keys_per_token, tokens_per_sequence, with_batch_fields


def copies_s(
    x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats, *, sparse: bool
) -> tuple[Floats, Floats]:
    """Return the exposed seconds of copying a layer's activations to the host, and of copying them back to the device.

    The first copy runs during the layer's forward pass, the second one during its backward pass. Only the time that a
    copy takes longer than the pass is exposed. Both are 0 if the layout does not offload activations.

    Args:
        x: Layouts.
        job: The job.
        forward_s: Seconds of computation in the layer's forward pass.
        backward_s: Seconds of computation in the layer's backward pass.
        sparse: True for a layer with experts.
    """
    if not x.offload_activations.any():
        return np.zeros(len(x)), np.zeros(len(x))
    accelerator = job.cluster.accelerator
    moved_bytes = LayerBytes.of(x, job, sparse=sparse).moved * x.offload_activations
    wire_s = moved_bytes / (HOST_LINK_EFFICIENCY * accelerator.host_bandwidth_bytes_per_s)
    share = overlap_share(accelerator)
    return np.maximum(wire_s - share * forward_s, 0.0), np.maximum(wire_s - share * backward_s, 0.0)


ATTENTION_FIELDS = (
    "tensor_parallel_degree",
    "context_parallel_degree",
    "micro_batch_size",
    "attention_kernel",
    "precision",
    "context_exchange",
)
"""Options that the time of an attention core depends on."""


def layer_work(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool = False) -> Work:
    """Return the time of one layer for a micro-batch: attention, feed-forward block, and the collectives of both.

    Args:
        x: Layouts.
        job: The job.
        sparse: True for a layer with experts.
        sends_cross: True if pipeline sends cross nodes at the same time.
    """
    products = layer_matrix_s(x, job, sparse=sparse)
    attention, attention_backward = _attention_s(x, job)
    pointwise = pointwise_s(x, job, sparse=sparse)
    tensor_s = layer_tensor_s(x, job, sparse=sparse)
    backward = products.backward_s + attention_backward + 2 * pointwise
    computed_s = products.forward_s + attention + pointwise
    host, host_backward = _host_s(
        x, job, computed_s + tensor_s, backward + tensor_s, sparse=sparse, sends_cross=sends_cross
    )
    forward = ForwardTimes(products.forward_s, attention, pointwise, host)
    again_s = recompute_s(x, job, forward, sparse=sparse)
    if job.cluster.accelerator.core is not None:
        watching_s, replaying_s = recompute_host_s(x, job.cluster.accelerator.core)
        host, again_s = host + watching_s, again_s + replaying_s
    forward_s = computed_s + host
    tensor_forward_s = exposed_tensor_s(x, tensor_s, products.forward_s, job.stack.overlaps_tensor_forward)
    tensor_backward_s = exposed_tensor_s(x, tensor_s, products.input_gradient_s, 0.0)
    hidden_s = np.minimum(tensor_backward_s, job.stack.overlaps_tensor_backward * products.weight_gradient_s)
    tensor_backward_s = tensor_backward_s - hidden_s
    exchange = exchange_times(x, job, attention, attention_backward)
    sent_s = dispatch_s(x, job) if sparse else np.zeros(len(x))
    core_again = repeats_core(x, job)
    sent_s = exposed_dispatch_s(job, sent_s, (forward_s + backward) / 2)
    out_s, back_s = copies_s(x, job, forward_s, backward + host_backward, sparse=sparse)
    return Work(
        matrix_s=products.forward_s + products.backward_s,
        attention_s=attention + attention_backward,
        pointwise_s=3 * pointwise,
        host_s=host + host_backward,
        recompute_s=again_s,
        offload_s=out_s + back_s,
        tensor_s=(1.0 + collectives_again(x, job)) * tensor_forward_s + tensor_backward_s,
        context_s=(1.0 + core_again) * exchange.forward_s + exchange.backward_s,
        expert_s=(2.0 + repeats_routing(x, job)) * sent_s,
        forward_s=forward_s + tensor_forward_s + exchange.forward_s + sent_s + out_s,
        weight_gradient_s=products.weight_gradient_s,
        backward_s=backward + host_backward + again_s,
    )


def _host_s(
    x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats, *, sparse: bool, sends_cross: bool
) -> tuple[Floats, Floats]:
    """Return the host's time in the passes of a layer that otherwise take this long."""
    if job.cluster.accelerator.core is not None:
        return layer_host_s(x, job.cluster.accelerator.core)
    launching_s = launches_s(x, job, sparse=sparse, sends_cross=sends_cross)
    host = host_wait_s(job, launching_s, forward_s)
    if sparse:
        host = host + dispatch_wait_s(x, job)
    return host, host_wait_s(job, launching_s, backward_s)


def input_work(x: LayoutColumns, job: Job) -> Work:
    """Return the time that one micro-batch spends in the token lookup (input embedding) and in its gradient."""
    seconds, tensor_s = lookup_s(x, job), end_of_model_s(x, job)
    return replace(
        Work.nothing(len(x)),
        pointwise_s=2 * seconds,
        tensor_s=tensor_s,
        forward_s=seconds + tensor_s,
        backward_s=seconds,
    )


def output_work(x: LayoutColumns, job: Job) -> Work:
    """Return the time that one micro-batch spends in output projection, softmax and cross-entropy.

    Tensor ranks split this work.
    """
    products, loss, joined_s = projection_s(x, job), loss_s(x, job), logits_gather_s(x, job)
    core = job.cluster.accelerator.core
    host, host_backward = ends_host_s(x, core) if core else (np.zeros(len(x)), np.zeros(len(x)))
    return replace(
        Work.nothing(len(x)),
        matrix_s=products.forward_s + products.backward_s,
        pointwise_s=loss,
        host_s=host + host_backward,
        tensor_s=end_of_model_s(x, job) + joined_s,
        forward_s=products.forward_s + loss / 2 + joined_s + host,
        weight_gradient_s=products.weight_gradient_s,
        backward_s=products.backward_s + loss / 2 + host_backward,
    )


class _Heads(NamedTuple):
    """The numbers of heads of an attention core, before ranks split them."""

    queries: int
    keys: int
    key_width: float
    value_width: float


def _attention_s(x: LayoutColumns, job: Job) -> tuple[Floats, Floats]:
    """Return the forward and backward seconds of the attention core, computed once per combination of its options.

    If some layers have a window or linear attention, the result is the mean over all layers.
    """
    few, which = x.distinct(*with_batch_fields(ATTENTION_FIELDS, job))
    model, keys = job.model, keys_per_token(few, job)
    widths = model.query_size / model.num_heads, model.attention_output_size / model.num_heads
    heads = _Heads(model.num_heads, model.num_kv_heads, *widths)
    cores_s = _cores_s(few, job, heads, keys)
    window, share = 2.0 * model.attention_window, model.num_windowed_layers / max(1, model.num_attending_layers)
    # with a causal mask a query sees half of the keys; with a window it sees all keys of the window
    if share and window < job.workload.seq_len:
        # kernels with their scores in memory compute those outside a window, too
        key_len = np.where(has_scores(few), keys, np.minimum(keys, window))
        cores_s = _mixed(cores_s, _cores_s(few, job, heads, key_len), share)
    if linear := model.linear_attention:
        heads = _Heads(linear.num_value_heads, linear.num_key_heads, linear.key_head_dim, linear.value_head_dim)
        key_len = np.full(len(few), 2.0 * linear.core_keys)
        cores_s = _mixed(cores_s, _cores_s(few, job, heads, key_len), model.linear_share)
    return cores_s[0][which], cores_s[1][which]


def _mixed(most: tuple[Floats, Floats], some: tuple[Floats, Floats], share: float) -> tuple[Floats, Floats]:
    """Return the forward and backward seconds of a layer, as the mean over layers of two kinds."""
    return (1 - share) * most[0] + share * some[0], (1 - share) * most[1] + share * some[1]


def _cores_s(x: LayoutColumns, job: Job, heads: _Heads, key_len: Floats) -> tuple[Floats, Floats]:
    """Return the time of an attention core in each row. Context ranks split its heads or its queries."""
    tokens = np.broadcast_to(tokens_per_sequence(x, job), len(x))
    head_ranks = np.where(x.context_exchange == ContextExchange.ALL_TO_ALL, x.context_parallel_degree, 1)
    ranks = x.tensor_parallel_degree * head_ranks
    forward_s, backward_s = np.zeros(len(x)), np.zeros(len(x))
    for rows, law in by_precision(x, kernels_for(job.cluster.accelerator).attention):
        shape = AttentionShape(
            batch=x.micro_batch_size[rows],
            num_heads=heads.queries / ranks[rows],
            num_kv_heads=heads.keys / ranks[rows],
            head_dim=heads.key_width,
            value_dim=heads.value_width,
            query_len=(tokens / (x.context_parallel_degree / head_ranks))[rows],
            key_len=key_len[rows],
        )
        forward, backward = attention_s(shape, x.attention_kernel[rows], law)
        sustained = law.products.sustained_share
        forward_s[rows], backward_s[rows] = forward / sustained, backward / sustained
    return forward_s, backward_s
