"""Activation offload: copies of what the backward pass needs to the host and back."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.costmodel.communication.overlap import overlap_share
from autotuner.costmodel.memory.activations import LayerBytes

HOST_LINK_EFFICIENCY = 0.8
"""Share of the stated bandwidth that copies from pinned memory reach: 25 of 31.5 GB/s on PCI Express 4.0 x16, from
memory."""


def copies_s(
    x: LayoutColumns, job: Job, forward_s: Floats, backward_s: Floats, *, sparse: bool
) -> tuple[Floats, Floats]:
    """Seconds by which a layer's copies out and back outlast the layer; a stream of their own runs them beside it.

    Args:
        x: Layouts.
        job: The job.
        forward_s: The layer's computation.
        backward_s: The computation of its backward pass.
        sparse: A layer with experts.
    """
    if not x.offload_activations.any():
        return np.zeros(len(x)), np.zeros(len(x))
    accelerator = job.cluster.accelerator
    moved_bytes = LayerBytes.of(x, job, sparse=sparse).moved * x.offload_activations
    wire_s = moved_bytes / (HOST_LINK_EFFICIENCY * accelerator.host_bandwidth_bytes_per_s)
    share = overlap_share(accelerator)
    return np.maximum(wire_s - share * forward_s, 0.0), np.maximum(wire_s - share * backward_s, 0.0)
