"""What replicas with a lossy exchange remember beside the optimizer, and what they work with while they exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from autotuner.core.choices import GradientSync
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.stages import follows_signs, payload_bytes

_WORKING_BYTES: Mapping[GradientSync, float] = {
    GradientSync.FULL: 0.0,
    GradientSync.DEMO: 4 + 4 + 4,  # components, those sent, and what they are of the momentum; or sums and senders
    GradientSync.RANDOM: 4.0,  # what is sent among zeros, or what came back
    GradientSync.STRIDING: 4.0,
    GradientSync.DILOCO: 4 + 4 + 4,  # what was learnt, packed, divided
}
"""Matrices in fp32 that are there at once, per element of a rank (``trials.replication``)."""


def state_bytes(x: LayoutColumns, job: Job) -> Floats:
    """Bytes per element that a rank owns, beside its master weight.

    AdamW's two moments; the momentum of a lossy exchange, in fp32, with them or in their place; or the anchor that
    DiLoCo counts from.
    """
    moments_bytes = np.full(len(x), 2 * (4.0 if job.workload.optimizer_state_precision == "fp32" else 2.0))
    if not x.gradient_sync.any():
        return moments_bytes
    one = cast("Layout", x)
    return np.where(follows_signs(one), 0.0, moments_bytes) + np.where(x.gradient_sync == GradientSync.FULL, 0.0, 4.0)


def exchanging_bytes(x: LayoutColumns, owned: Floats) -> Floats:
    """Bytes of matrices and of gathered payloads while replicas exchange; 0 where all gradients are summed.

    Args:
        x: The layouts.
        owned: Elements of a rank.
    """
    sync = x.gradient_sync
    working = np.array([_WORKING_BYTES[one] for one in GradientSync])[sync]
    gathered = np.where(sync == GradientSync.DEMO, x.data_parallel_replicate_degree, 0)
    payload = cast("Floats", payload_bytes(cast("Layout", x), cast("float", owned), 4.0))
    found: Floats = working * owned + gathered * payload
    return found
