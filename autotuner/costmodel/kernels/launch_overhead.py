"""The host: what launching a layer's kernels costs it, and how long the device waits for that."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.kernels.casts import cast_kernels
from autotuner.costmodel.routing import local_experts

KERNELS_PER_LAYER = 16
"""Forward kernels of a dense layer: 7 products, 2 norms, 2 rotations, attention, 2 for the gate, 2 residual sums."""

COMPILED_KERNELS_PER_LAYER = 12
"""Forward kernels of a compiled layer, where what lies between is fused: 7 products, attention, and before each product
that follows another one kernel: norm, rotations, sum and norm, gate; the second sum goes with the next layer's norm."""

KERNELS_PER_ROUTING = 45
"""More of them in a sparse layer, as Megatron-LM launches them (core/transformer/moe, core 0.13, 2025-07): router with
top-k, its mask and its loss 15, counting tokens by rank and expert 12, sorting them and their weights 7, again by local
expert 5, and back 4, shape and sum 2.

Qwen3 30B on H100 and B200 takes 9 ms a layer with micro-batches of 4,096 tokens, on both alike, where the devices have
work for 6.5 and 4 (NVIDIA-NeMo/Megatron-Bridge, 26.02): two passes of 72 launches of 60 microseconds.
"""

KERNELS_PER_EXPERT = 4
"""Kernels of an expert that multiplies by itself: 2 or 3 products, the gate, taking its rows."""

KERNELS_PER_EXPERT_BIAS = 4
"""Kernels of each expert whose matrices carry biases: weighed and added one expert after the other, its gradients
summed so (``TEGroupedMLP._apply_bias``, core 0.16: 2 forward, 6 backward)."""

KERNELS_PER_LATENT = 30
"""More of them in a layer with latent attention: three products, two norms, two gathers of latents, and heads that are
split, turned by elementary operations and joined (core/transformer/multi_latent_attention.py, core 0.13)."""

LAUNCHES_PER_DISPATCH_WAIT = 3
"""What reading the numbers of coming tokens costs: a copy to the host, and two launches before the device has work."""

LAUNCHES_PER_COLLECTIVE = 3
"""What issuing a collective costs the host, in kernel launches: checks, events on two streams, the kernel."""


def launches_s(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool) -> Floats:
    """What launching a layer's forward pass costs the host; its backward, which starts in C++, costs as much."""
    per_layer = np.where(x.compiled, COMPILED_KERNELS_PER_LAYER, KERNELS_PER_LAYER)
    kernels = per_layer + (job.model.num_norms_per_layer - 2)
    kernels = kernels + KERNELS_PER_LATENT * (job.model.latent_attention is not None) + cast_kernels(x, job)
    if sparse and job.model.experts:
        alone = 1.0 if job.stack.groups_experts else local_experts(x, job.model.experts)
        kernels = kernels + KERNELS_PER_ROUTING + KERNELS_PER_EXPERT * (alone - 1)
        kernels = kernels + KERNELS_PER_EXPERT * (job.model.experts.num_shared_experts > 0)
        if job.model.experts.expert_bias:
            kernels = kernels + KERNELS_PER_EXPERT_BIAS * local_experts(x, job.model.experts)
    if job.cluster.accelerator.kind == "cpu":
        return kernels * job.cluster.accelerator.kernel_launch_s
    collectives_per_pass = np.where(x.sequence_parallel, 4, 2) * (x.tensor_parallel_degree > 1)
    if sparse:
        collectives_per_pass = collectives_per_pass + 2 * (x.expert_parallel_degree > 1)
    seconds: Floats = (kernels + LAUNCHES_PER_COLLECTIVE * collectives_per_pass) * job.stack.kernel_launch_s
    # two all-reduces, each twice around the ring: beside sends that cross every step waits, else those that cross too
    crossing = np.ceil(x.tensor_parallel_degree / job.cluster.accelerators_per_domain) - 1
    steps = x.tensor_parallel_degree - 1 if sends_cross else crossing
    waits: Floats = seconds + 2 * 2 * steps * job.stack.tensor_wait_s
    return waits


def dispatch_wait_s(x: LayoutColumns, job: Job) -> Floats:
    """How long the device has nothing to do in a forward pass whose host waits to know how many tokens come."""
    waits = job.stack.dispatch_waits and job.model.experts is not None and job.model.experts.capacity_factor is None
    launches = LAUNCHES_PER_DISPATCH_WAIT * waits * (job.cluster.accelerator.kind != "cpu")
    return np.where(x.expert_parallel_degree > 1, launches * job.stack.kernel_launch_s, 0.0)


def host_wait_s(job: Job, launching_s: Floats, device_s: Floats) -> Floats:
    """How long a device waits for launches that take ``launching_s`` beside ``device_s`` of its own work.

    The host runs ahead of the device, so the longer of the two decides, but not through a whole step: it stops where it
    reads a result, and short kernels lie beside long ones. The power mean makes the corner about as round as vTrain's
    small models show it: passes of 25, 51 and 205 ms under 67 ms of launches took 67, 75 and 205 ms.

    On a CPU the core that launches also computes.
    """
    if job.cluster.accelerator.kind == "cpu":
        return launching_s
    return np.maximum(0.0, np.sqrt(np.sqrt(device_s**4 + launching_s**4)) - device_s)
