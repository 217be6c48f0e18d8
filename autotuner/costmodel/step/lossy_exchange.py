"""The cost of a lossy exchange between replicas in a step: bytes on the wire, and kernels before and after it.

All of this runs after the backward pass, because the whole gradient, clipped by its norm, is added to the momentum
before a part of the momentum is selected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from autotuner.catalog.kernels import kernels_for
from autotuner.core.choices import GradientSync, Precision
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import payload_bytes, payload_elements, steps_per_exchange
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s
from autotuner.costmodel.communication.layout_groups import exchange_group
from autotuner.costmodel.layer.matrix_products import gemm_s
from autotuner.costmodel.layer.memory_bound import stream_rate

_NUM_TRANSFORMS = 3
"""Number of products of chunks with the cosine basis: of the momentum, of the sent data, and of the received data."""

_TOP_K_BYTES = 156.0
"""Bytes that a core streams, at 8.5 GB/s, while it selects the largest of its elements. Whole exchanges in chunks of 32
to 256 need that time in addition to everything else (measured 2026-11-23: 20 to 33 ns per element, predicted 0.79 to
1.08 times as long; torch 2.13, one thread of an EPYC). Nothing was measured on GPUs, whose top-k of short rows is slow
too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    """Bytes that the operations of an exchange read and write in fp32 (``autotuner.training.lossy_exchange``)."""

    element: float
    """Bytes per element of the momentum, or of the parameters."""
    sent: float
    """Bytes per element or component that a rank sends."""
    received: float
    """Bytes per element or component that a rank receives, including its own."""


_MOMENTUM = (4 + 4) + (4 + 4 + 4)
"""Bytes per element to decay a momentum and to add a gradient to it."""

_HASH = 9 * (8 + 8) + 4 * (8 + 8 + 8) + 8 + 8
"""Bytes per row to select one of its elements at random: operations on 64-bit words with one operand and with two, and
their inputs (``autotuner.training.momentum``)."""


def _of_elements(drawn: float) -> _Traffic:
    return _Traffic(
        # sent elements are put among zeros and subtracted; received elements are put among zeros
        element=_MOMENTUM + 4 + (4 + 4 + 4) + 4,
        sent=drawn + (8 + 4 + 4) + (8 + 4 + 4),  # gathered, put among zeros
        received=(4 + 4) + (8 + 4 + 4),  # divided, put among zeros
    )


_TRAFFIC: Mapping[GradientSync, _Traffic] = {
    GradientSync.FULL: _Traffic(element=0.0, sent=0.0, received=0.0),
    GradientSync.DEMO: _Traffic(
        element=_MOMENTUM
        + ((4 + 4) + _TOP_K_BYTES)  # magnitudes, and the largest of them
        + (4 + (4 + 4 + 4))  # sent components are put among zeros and subtracted
        + (4 + 4 + (4 + 4) + (4 + 4 + 4)),  # sums and senders from zeros, at least one, divided
        sent=(8 + 4) + (8 + 4 + 4) + (8 + 4 + 4) + 2 * (4 + 1),  # selected, gathered, put among zeros, packed
        received=(1 + 8) + 4 + 2 * (8 + 4 + 4 + 4),  # unpacked; values and counts are added to the sums
    ),
    GradientSync.RANDOM: _of_elements(_HASH),
    GradientSync.STRIDING: _of_elements(8),
    GradientSync.DILOCO: _Traffic(
        element=(4 + 4 + 4)
        + (4 + 4)  # changes of parameters, packed
        + ((4 + 4) + (4 + 4 + 4))  # divided, added to the anchor
        + (4 + 4),  # the anchor is copied to the parameters
        sent=0.0,
        received=0.0,
    ),
}


def lossy_exchange_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the seconds that a lossy gradient exchange adds to an average step; 0 if all gradients are summed.

    A lossy exchange compresses gradients, or exchanges them only every few steps. No computation hides these seconds.
    If an exchange takes place every few steps, its time is divided by the number of these steps.

    Args:
        x: The layouts.
        job: The job.
        num_elements: Gradient elements of the shard that a rank owns.
    """
    once_s = exchange_wire_s(x, job, num_elements) + exchange_kernels_s(x, job, num_elements)
    return np.where(x.gradient_sync == GradientSync.FULL, 0.0, once_s / steps_per_exchange(_one(x)))


def exchange_wire_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the seconds on the wire of one lossy exchange: an all-gather with DeMo, otherwise an all-reduce.

    Args:
        x: The layouts.
        job: The job.
        num_elements: Gradient elements of the shard that a rank owns.
    """
    group, one = exchange_group(x, job.cluster), _one(x)
    sent_bytes = _column(payload_bytes(one, cast("float", num_elements), 4.0) * steps_per_exchange(one))
    gathered_s = all_gather_s(sent_bytes * group.num_ranks, group)
    return np.where(x.gradient_sync == GradientSync.DEMO, gathered_s, all_reduce_s(sent_bytes, group))


def exchange_kernels_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the seconds of the kernels before and after the communication of one lossy exchange.

    The kernels move memory. The kernels of DeMo also multiply by the matrices of a cosine transform.

    Args:
        x: The layouts.
        job: The job.
        num_elements: Gradient elements of the shard that a rank owns.
    """
    element, sent, received = (
        np.array([getattr(_TRAFFIC[sync], name) for sync in GradientSync])[x.gradient_sync]
        for name in ("element", "sent", "received")
    )
    replicas = np.where(x.gradient_sync == GradientSync.DEMO, x.data_parallel_replicate_degree, 1)
    num_sent = _column(payload_elements(_one(x), cast("float", num_elements)) * steps_per_exchange(_one(x)))
    moved_bytes: Floats = element * num_elements + (sent + replicas * received) * num_sent
    return moved_bytes / stream_rate(job) + _transforms_s(x, job, num_elements)


def _transforms_s(x: LayoutColumns, job: Job, num_elements: Floats) -> Floats:
    """Return the time of the products of the momentum's chunks with the cosine basis, in fp32."""
    law = kernels_for(job.cluster.accelerator).gemm[Precision.FP32]
    once_s = gemm_s(num_elements / x.sync_chunk, x.sync_chunk, x.sync_chunk, law) / law.sustained_share
    return np.where(x.gradient_sync == GradientSync.DEMO, _NUM_TRANSFORMS * once_s, 0.0)


def _one(x: LayoutColumns) -> Layout:
    """Return columns typed as one layout, for formulas whose operators also work on columns."""
    return cast("Layout", x)


def _column(number: float) -> Floats:
    return cast("Floats", number)
