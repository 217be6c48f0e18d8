"""Memory traffic: kernels whose time is the bytes that they move."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.costmodel.micro_batch import hidden_bytes, hidden_split, logits_split, tokens_per_pass
from autotuner.domain.jobs.job import Job
from autotuner.domain.layouts.choice import OptimizerKernel, Precision

__all__ = ["lookup_s", "loss_s", "optimizer_s", "pointwise_s", "stream_rate"]

BANDWIDTH_EFFICIENCY = 0.85
"""Share of the stated memory bandwidth of streaming kernels: 1.74 of 2.04 TB/s for BabelStream's triad on an A100."""


def stream_rate(job: Job) -> float:
    """Bytes per second of kernels that only move memory."""
    return BANDWIDTH_EFFICIENCY * job.cluster.accelerator.memory_bandwidth_bytes_per_s


def pointwise_s(x: LayoutColumns, job: Job, *, sparse: bool) -> Floats:
    """Forward seconds of norms, residual sums, rotations and activations; a backward takes twice as long.

    Elements read and written per token: each norm 2 h, each residual sum 3 h, the rotation twice its operand, the
    activation its inputs and its output. Sequence parallelism splits what the tensor ranks otherwise repeat
    (arXiv 2205.05198, section 4.2.2). The stack says how much more than that it moves; compiled, each is one kernel,
    which is what TorchInductor fuses elementary operations to (Ansel et al., ASPLOS 2024).
    """
    model, stack, tensor = job.model, job.stack, x.tensor_parallel_degree
    norms = 2 * (2 + np.where(x.fused_norm | x.compiled, 0.0, stack.unfused_norm_traffic))
    hidden = (norms + 2 * 3) * model.hidden_size / hidden_split(x)
    rotated = 2 * (model.query_size + model.key_value_size / 2) / tensor
    width = model.ffn_size
    if sparse and model.experts:
        active = model.experts.experts_per_token + model.experts.num_shared_experts
        width = active * model.experts.expert_ffn_size
        hidden = hidden + 4 * model.experts.experts_per_token * model.hidden_size / tensor  # permute and back
    activated = (3 if model.gated_mlp else 2) * width / tensor
    moved_bytes = x.element_bytes * tokens_per_pass(x, job) * (hidden + rotated + activated)
    traffic = np.where(x.compiled, min(1.0, stack.pointwise_traffic), stack.pointwise_traffic)
    seconds: Floats = traffic * moved_bytes / stream_rate(job)
    return seconds


def lookup_s(x: LayoutColumns, job: Job) -> Floats:
    """Token lookup; its gradient takes as long."""
    return 2 * hidden_bytes(x, job) / stream_rate(job)


def loss_s(x: LayoutColumns, job: Job) -> Floats:
    """Softmax and cross-entropy, half of it before the loss is known.

    Logits in fp32: written, read for the maximum and the sum, read and written for the gradient; fused: read once less,
    and all in 16 bits.
    """
    logit_bytes = 3 * x.element_bytes if job.stack.fuses_loss else 5 * 4.0
    moved_bytes = logit_bytes * tokens_per_pass(x, job) * job.model.vocab_size / logits_split(x, job)
    seconds: Floats = job.stack.pointwise_traffic * moved_bytes / stream_rate(job)
    return seconds


def optimizer_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """AdamW on the elements a rank owns: read and write weight and two moments, read the gradient.

    In mixed precision the gradient is first widened to fp32 and the weight written a second time, in 16 bits. One
    kernel per operation (``_multi_tensor_adam`` of torch/optim/adam.py) passes over the first moment 3 times, the
    second 5, the gradient 2, the weight 4, and 6 times over a copy of its own, the roots of the second moment.
    """
    moment_bytes = 4 if job.workload.optimizer_state_precision == "fp32" else 2
    widened_bytes = np.where(x.precision == Precision.FP32, 0.0, 2.0 + 4.0 + 2.0)
    fused_bytes, foreach_bytes = 2 * 4 + 2 * 2 * moment_bytes + 4, (3 + 5) * moment_bytes + (2 + 4 + 6) * 4
    moved_bytes = np.where(x.optimizer_kernel == OptimizerKernel.FOREACH, foreach_bytes, fused_bytes) + widened_bytes
    seconds: Floats = job.stack.step_overhead_s + num_elements * moved_bytes / stream_rate(job)
    return seconds
