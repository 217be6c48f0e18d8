"""The host: what launching a layer's kernels costs it, and how long the device waits for that."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.jobs.job import Job

__all__ = ["host_wait_s", "launches_s"]

KERNELS_PER_LAYER = 16
"""Forward kernels of a dense layer: 7 products, 2 norms, 2 rotations, attention, 2 for the gate, 2 residual sums."""

COMPILED_KERNELS_PER_LAYER = 12
"""Forward kernels of a compiled layer, where what lies between is fused: 7 products, attention, and before each product
that follows another one kernel: norm, rotations, sum and norm, gate; the second sum goes with the next layer's norm."""

KERNELS_PER_ROUTING = 12
"""More of them in a sparse layer: router, softmax, top-k, sort, counts, permute and back, scale, sum."""

LAUNCHES_PER_COLLECTIVE = 3
"""What issuing a collective costs the host, in kernel launches: checks, events on two streams, the kernel."""


def launches_s(x: LayoutColumns, job: Job, *, sparse: bool, sends_cross: bool) -> Floats:
    """What launching a layer's forward pass costs the host; its backward, which starts in C++, costs as much."""
    per_layer = np.where(x.compiled, COMPILED_KERNELS_PER_LAYER, KERNELS_PER_LAYER)
    kernels = per_layer + (KERNELS_PER_ROUTING if sparse else 0)
    if job.cluster.accelerator.kind == "cpu":
        return kernels * job.cluster.accelerator.kernel_launch_s
    collectives_per_pass = np.where(x.sequence_parallel, 4, 2) * (x.tensor_parallel_degree > 1)
    seconds: Floats = (kernels + LAUNCHES_PER_COLLECTIVE * collectives_per_pass) * job.stack.kernel_launch_s
    if sends_cross:  # two all-reduces, each twice around the ring
        seconds = seconds + 2 * 2 * (x.tensor_parallel_degree - 1) * job.stack.tensor_wait_s
    return seconds


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
