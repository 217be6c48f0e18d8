"""What of a collective's wire time computation hides."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats
from autotuner.domain.cluster import Accelerator

__all__ = ["exposed_s", "overlap_share"]


def overlap_share(accelerator: Accelerator) -> float:
    """Share of a computation's time under which a collective makes progress.

    1 on GPUs, whose copy engines and network cards work beside the matrix units; 0 on a CPU, where the core that
    computes also moves the bytes.
    """
    return 0.0 if accelerator.kind == "cpu" else 1.0


def exposed_s(wire_s: Floats, window_s: Floats, num_parts: Floats) -> Floats:
    """Seconds that stay visible of a collective issued in ``num_parts`` equal parts during ``window_s``.

    Each part starts when the computation it belongs to is done, so at best all but the last part are hidden; the
    bucketed all-reduce of arXiv 2006.15704, section 3.2.
    """
    return np.maximum(wire_s - window_s, wire_s / num_parts)
