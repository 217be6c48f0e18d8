"""The part of a step that the host spends on launches, Python and dispatch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotuner.core.accelerator import CoreTimes, SplitTimes
from autotuner.core.choices import Recompute
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.layer.quantization import cast_kernels
from autotuner.costmodel.shared.micro_batch import local_experts

KERNELS_PER_LAYER = 16
"""Number of forward kernels of a dense layer: 7 products, 2 norms, 2 rotations, attention, 2 for the gate, 2 residual
sums."""

COMPILED_KERNELS_PER_LAYER = 12
"""Number of forward kernels of a compiled layer, in which operations between products are fused: 7 products, attention,
and one kernel before each product that follows another: norm, rotations, sum and norm, gate. The second sum goes
with the next layer's norm."""

KERNELS_PER_ROUTING = 45
"""Number of further kernels in a sparse layer, counted in Megatron-LM (core/transformer/moe, core 0.13, 2025-07): 15
for the router with top-k, mask and loss, 12 to count tokens by rank and expert, 7 to sort tokens and their weights, 5
to sort them by local expert, 4 to sort them back, 2 for shape and sum.

Qwen3 30B on H100 and B200 takes 9 ms a layer with micro-batches of 4,096 tokens, on both alike, where the devices have
work for 6.5 and 4 (NVIDIA-NeMo/Megatron-Bridge, 26.02): two passes of 72 launches of 60 microseconds.
"""

KERNELS_PER_EXPERT = 4
"""Number of kernels of an expert that multiplies separately: 2 or 3 products, the gate, and one that selects its
rows."""

KERNELS_PER_EXPERT_BIAS = 4
"""Number of kernels of each expert whose matrices have biases. The biases are weighted and added one expert after the
other, and so are their gradients (``TEGroupedMLP._apply_bias``, core 0.16: 2 forward, 6 backward)."""

KERNELS_PER_LATENT = 30
"""Number of further kernels in a layer with latent attention: three products, two norms, two gathers of latents, and
operations that split heads, rotate them and join them (core/transformer/multi_latent_attention.py, core 0.13)."""

LAUNCHES_PER_DISPATCH_WAIT = 3
"""Cost, in launches, of reading the number of incoming tokens: a copy to the host, and two launches before the device
has work again."""

LAUNCHES_PER_COLLECTIVE = 3
"""Cost for the host to issue a collective, in kernel launches: checks, events on two streams, the kernel."""


def launches_s(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool) -> Floats:
    """Return the seconds that the host (the CPU that drives a device) needs to launch a layer's forward kernels.

    The launches of the backward pass, which start in C++, take as long.

    Args:
        x: Layouts, one per row.
        job: The job.
        sparse: True for a layer with experts.
        sends_cross: True if pipeline sends cross nodes at the same time.
    """
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
    # two all-reduces, each twice around the ring: with crossing sends every step waits, else only crossing steps
    crossing = np.ceil(x.tensor_parallel_degree / job.cluster.accelerators_per_domain) - 1
    steps = x.tensor_parallel_degree - 1 if sends_cross else crossing
    waits: Floats = seconds + 2 * 2 * steps * job.stack.tensor_wait_s
    return waits


def dispatch_wait_s(x: LayoutColumns, job: Job) -> Floats:
    """Return the seconds of a forward pass in which the device is idle because its host waits for token counts.

    The host must read how many tokens arrive for each expert before it can launch the experts' kernels.
    """
    waits = job.stack.dispatch_waits and job.model.experts is not None and job.model.experts.capacity_factor is None
    launches = LAUNCHES_PER_DISPATCH_WAIT * waits * (job.cluster.accelerator.kind != "cpu")
    return np.where(x.expert_parallel_degree > 1, launches * job.stack.kernel_launch_s, 0.0)


def host_wait_s(job: Job, launching_s: Floats, device_s: Floats) -> Floats:
    """Return the seconds that a device waits for its host to launch kernels.

    The host runs ahead of the device, so that the longer of both times decides. But the host does not run ahead for a
    whole step: it stops where it reads a result, and short kernels come between long ones. A power mean of both times
    describes this about as vTrain measured small models: passes of 25, 51 and 205 ms with 67 ms of launches took 67, 75
    and 205 ms.

    On a CPU the core that launches also computes, so that the wait is all of ``launching_s``.

    Args:
        job: The job.
        launching_s: Seconds that the host needs to launch the kernels.
        device_s: Seconds of the device's own work in the same time.
    """
    if job.cluster.accelerator.kind == "cpu":
        return launching_s
    return np.maximum(0.0, np.sqrt(np.sqrt(device_s**4 + launching_s**4)) - device_s)


def layer_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Return the seconds of overhead, such as launches, in one layer's passes on CPU cores: forward, then backward.

    Recomputation is not included.
    """
    forward_s = core.layer.forward_s + _split_s(x, core, lambda split: split.layer.forward_s)
    backward_s = core.layer.backward_s + _split_s(x, core, lambda split: split.layer.backward_s)
    return forward_s, backward_s


def ends_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Return the seconds of overhead, such as launches, in the embedding, the last norm, the output and the loss.

    The times are for training on CPU cores: first for the forward pass, then for the backward pass.
    """
    forward_s = core.ends.forward_s + _split_s(x, core, lambda split: split.ends.forward_s)
    backward_s = core.ends.backward_s + _split_s(x, core, lambda split: split.ends.backward_s)
    return forward_s, backward_s


def recompute_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Return the extra seconds of overhead that recomputation of a layer causes on CPU cores, in each pass.

    The results are for the forward pass and for the backward pass. With selective recomputation, PyTorch intercepts
    every operation. In the backward pass it calls each operation again, and then either runs the operation or uses its
    kept result. The result for the backward pass does not include the kernels that run again. With full recomputation,
    the overhead of the repeated forward pass is not included either: the cost model adds it with the rest of that pass.
    """
    selective, full = x.recompute == Recompute.SELECTIVE, x.recompute == Recompute.FULL
    calling_s = core.layer.forward_s + _split_s(x, core, lambda split: split.dispatch_s)
    watching_s = core.selective.forward_s * selective + core.full.forward_s * full
    return watching_s, (core.selective.backward_s + calling_s) * selective + core.full.backward_s * full


def shard_host_s(num_ranks: Integers, core: CoreTimes) -> tuple[Floats, Floats]:
    """Return the extra seconds of FSDP overhead on CPU cores: to gather one layer, and to reduce its gradients.

    Both times grow with the number of steps of a ring. Both are 0 if FSDP was not measured.
    """
    if core.sharded is None:
        return np.zeros(len(num_ranks)), np.zeros(len(num_ranks))
    steps = (num_ranks - 1) / (core.sharded.num_ranks - 1)
    return steps * core.sharded.gather_s, steps * core.sharded.reduce_s


def _split_s(x: LayoutColumns, core: CoreTimes, seconds: Callable[[SplitTimes], float]) -> Floats:
    """Return the additional seconds of tensor ranks, interpolated between the measured degrees."""
    added_s = np.zeros(len(x))
    for sequence_parallel in (False, True):
        measured = [one for one in core.split if one.sequence_parallel == sequence_parallel]
        by_ranks = {1: 0.0} | {one.num_ranks: seconds(one) for one in measured}
        ranks, rows = sorted(by_ranks), x.sequence_parallel == sequence_parallel
        added_s[rows] = np.interp(x.tensor_parallel_degree[rows], ranks, [by_ranks[n] for n in ranks])
    return added_s
