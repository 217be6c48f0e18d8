"""Kernels whose time is the time of moving memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import cast

import numpy as np

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import OptimizerKernel, Precision
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.recompute import LayerPart
from autotuner.core.stages import follows_signs
from autotuner.costmodel.shared.micro_batch import (
    hidden_bytes,
    hidden_split,
    load_factor,
    local_experts,
    logits_split,
    own_copies,
    own_tokens,
    tokens_per_pass,
    width_split,
)


def stream_rate(job: Job) -> float:
    """Return the memory bandwidth, in bytes per second, of kernels that only move memory."""
    return job.cluster.accelerator.streaming_bytes_per_s


def _eager_s_per_byte(job: Job) -> float:
    """Return the seconds per operand byte of operations between products.

    On a CPU core, this is the value that a profile of layers measured.
    """
    core = job.cluster.accelerator.core
    return 1 / core.pointwise_bytes_per_s if core else job.stack.pointwise_traffic / stream_rate(job)


def pointwise_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Return the seconds of norms, residual sums, rotary embeddings and activations in a layer's forward pass.

    The backward pass takes twice as long. A software stack may move more bytes than ``_pointwise_elements`` counts; its
    constants say how many. If the layer is compiled, each of these operations is one kernel, because TorchInductor
    fuses elementary operations (Ansel et al., ASPLOS 2024).

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    elements = reduce(np.add, _pointwise_elements(x, job, sparse=sparse).values())
    moved_bytes = x.element_bytes * tokens_per_pass(x, job) * elements
    eager_s = _eager_s_per_byte(job)
    seconds: Floats = moved_bytes * np.where(x.compiled, min(1 / stream_rate(job), eager_s), eager_s)
    return seconds


def pointwise_shares(x: LayoutColumns, job: Job, *, sparse: bool) -> Mapping[LayerPart, Floats]:
    """Return the share, 0..1, of each part of a layer in ``pointwise_s``: the time of operations that move memory.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
    """
    parts = _pointwise_elements(x, job, sparse=sparse)
    total = reduce(np.add, parts.values())
    return {part: elements / total for part, elements in parts.items()}


def _pointwise_elements(x: LayoutColumns, job: Job, *, sparse: bool) -> Mapping[LayerPart, Floats]:
    """Return the elements that each part of a layer reads and writes per token.

    Each norm moves 2 h elements, each residual sum 3 h (4 h with parallel blocks), the rotation twice its operand, the
    activation its inputs and its output. Sequence parallelism splits the operations that tensor ranks otherwise repeat
    (arXiv 2205.05198, section 4.2.2). Heads of latent attention are joined from two parts, one of which is rotary.
    """
    model, tensor = job.model, x.tensor_parallel_degree
    norm = 2 + np.where(x.fused_norm | x.compiled, 0.0, job.stack.unfused_norm_traffic)
    hidden = model.hidden_size / hidden_split(x)
    norms_per_block = model.num_norms_per_layer / 2
    parts = {
        LayerPart.ATTENTION_NORM: norms_per_block * norm * hidden,
        LayerPart.MLP_NORM: norms_per_block * norm * hidden,
        LayerPart.RESIDUAL: (4 if model.parallel_blocks else 2 * 3) * hidden,
        LayerPart.ROTATION: 2 * (model.query_size + model.key_value_size / 2) / tensor,
    }
    if model.latent_attention:
        # joining the parts of heads
        parts |= {LayerPart.LATENT_UP: 2 * (model.query_size + model.key_value_size) / tensor}
    if model.attention_output_gate:
        # reading the gate and its input, and writing the result
        parts |= {LayerPart.CORE: 3 * model.output_gate_size / tensor}
    inner = 3 if model.gated_mlp else 2
    if not (sparse and model.experts):
        return parts | {LayerPart.MLP_ACTIVATION: inner * model.ffn_size / tensor}
    experts = model.experts
    routed = experts.experts_per_token * load_factor(x, job, experts) * experts.expert_ffn_size
    return parts | {
        LayerPart.EXPERT_ACTIVATION: inner * (routed + experts.shared_ffn_size) / tensor,
        LayerPart.ROUTING: _routing_elements(x, job, experts),
    }


_SCORE_PASSES = 10
"""Number of passes over a token's fp32 scores of all experts: writing, softmax, top-k, probabilities and mask of the
selected experts, counts, and the balancing loss."""


_BIAS_ELEMENTS = 12
"""Bytes read and written per output element to add an expert's bias, weighted and in fp32, and to join the parts of all
experts (``TEGroupedMLP._apply_bias`` of Megatron-LM, core 0.16)."""


def _routing_elements(x: LayoutColumns, job: Job, experts: MixtureOfExperts) -> Floats:
    """Return the elements read and written per token to select experts, to sort tokens by expert, and to sum outputs.

    Copies of tokens are written in the order of their experts, and outputs are summed from that order. Tokens that
    arrive from several ranks for several experts are sorted once more, and back, unless the receiving kernels do so.
    """
    split = tokens_per_pass(x, job) / own_tokens(x, job)
    copies = own_copies(x, job, experts) / own_tokens(x, job)
    arrives_mixed = (x.expert_parallel_degree > 1) & (local_experts(x, experts) > 1)
    resorted = 4 * copies * width_split(x, job) * arrives_mixed * (job.stack.dispatch == "all_to_all")
    hidden = job.stack.routing_traffic * (2 + 2 * copies + resorted) * job.model.hidden_size
    scores = _SCORE_PASSES * 4 / x.element_bytes * experts.num_experts
    hidden = hidden + experts.expert_bias * _BIAS_ELEMENTS * copies * width_split(x, job) * job.model.hidden_size
    elements: Floats = (hidden + scores) / split
    return elements


def lookup_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds of the token lookup (input embedding). The gradient of the lookup takes as long."""
    return 2 * hidden_bytes(x, job) / stream_rate(job)


def loss_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds of softmax and cross-entropy in both passes; half of them belong to the forward pass.

    Logits are in fp32. They are written, read for the maximum, read for the sum, and read and written for the gradient.
    A fused loss moves 16-bit logits three times instead of five.
    """
    logit_bytes = 3 * x.element_bytes if job.stack.fuses_loss else 5 * 4.0
    moved_bytes = logit_bytes * tokens_per_pass(x, job) * job.model.vocab_size / logits_split(x, job)
    seconds: Floats = moved_bytes * _eager_s_per_byte(job)
    return seconds


_SIGN_BYTES = (4 + 4) + (4 + 4) + (4 + 4 + 4)
"""Bytes per element to take the sign, to decay the weight, and to step along the sign."""


def optimizer_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the seconds of the optimizer's step on the elements that a rank owns.

    A fused AdamW kernel reads and writes the weight and two moments, and reads the gradient. In mixed precision the
    gradient is first widened to fp32, and the weight is written a second time, in 16 bits. AdamW with one kernel per
    operation (``_multi_tensor_adam`` of torch/optim/adam.py) moves the first moment 3 times, the second moment 5 times,
    the gradient 2 times, the weight 4 times, and a temporary copy (the roots of the second moment) 6 times. Sign
    descent, which follows some lossy exchanges, has no moments.

    If the layout moves a share of the optimizer to the host, the host steps its share at the same time, as Megatron's
    HybridDeviceOptimizer does.

    Args:
        x: Layouts, one per row.
        job: The job.
        num_elements: Elements that a rank's optimizer updates, of shape (layouts,).
    """
    moment_bytes = 4 if job.workload.optimizer_state_precision == "fp32" else 2
    widened_bytes = np.where(x.precision == Precision.FP32, 0.0, 2.0 + 4.0 + 2.0)
    fused_bytes, foreach_bytes = 2 * 4 + 2 * 2 * moment_bytes + 4, (3 + 5) * moment_bytes + (2 + 4 + 6) * 4
    stepped_bytes = np.where(x.optimizer_kernel == OptimizerKernel.FOREACH, foreach_bytes, fused_bytes)
    if x.gradient_sync.any():
        stepped_bytes = np.where(follows_signs(cast("Layout", x)), _SIGN_BYTES, stepped_bytes)
    moved_bytes = stepped_bytes + widened_bytes
    on_host = num_elements * (x.optimizer_offload_percent / 100.0)
    seconds: Floats = (num_elements - on_host) * moved_bytes / stream_rate(job)
    if on_host.any():
        seconds = np.maximum(seconds, on_host * _host_s_per_element(job))
    return job.stack.step_overhead_s + seconds


HOST_LINK_EFFICIENCY = 0.8
"""Share of the stated bandwidth that copies from pinned memory reach: 25 of 31.5 GB/s on PCI Express 4.0 x16. The
figure was written from memory, without a source."""

_HOST_STEP_BYTES = 7 * 4
"""Bytes per element of an AdamW step on a host: the weight and both moments are read and written, the gradient is read,
all in fp32."""

_HOST_MEMORY_BYTES_PER_S = 40e9
"""Memory bandwidth of the host's processors for each accelerator. It is an assumption: somewhat less than an eighth of
two sockets with eight channels of DDR4-3200 each (51 GB/s). It was not compared with a measured run."""


def _host_s_per_element(job: Job) -> float:
    """Return the seconds per element in which the host receives a gradient, updates the weight, and sends it back.

    Both transfers are in fp32 (megatron-core 0.16.1, optimizer/cpu_offloading/hybrid_optimizer.py, with
    ``param_update_in_fp32``.)
    """
    copied_s = (4 + 4) / (HOST_LINK_EFFICIENCY * job.cluster.accelerator.host_bandwidth_bytes_per_s)
    return copied_s + _HOST_STEP_BYTES / _HOST_MEMORY_BYTES_PER_S
