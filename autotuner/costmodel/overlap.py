"""What of a collective's wire time computation hides, and what hiding it costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotuner.costmodel.columns import Floats
from autotuner.domain.cluster import Accelerator

__all__ = ["CONTENTION", "exposed_s", "overlap_share"]

CONTENTION: Mapping[str, float] = {"cuda": 0.19, "rocm": 0.19, "cpu": 0.0}
"""By how much computation slows down while a collective runs beside it: both want multiprocessors and memory bandwidth.

Mean of 18.9 %, at most 40 %, over GPT and LLaMA training on A100, H100, MI210 and MI250 (arXiv 2507.03114, abstract;
no value by accelerator there). A core that communicates does not compute at all, which is ``overlap_share``.
"""


def overlap_share(accelerator: Accelerator) -> float:
    """Share of a computation's time under which a collective makes progress.

    1 on GPUs, whose copy engines and network cards work beside the matrix units; 0 on a CPU, where the core that
    computes also moves the bytes.
    """
    return 0.0 if accelerator.kind == "cpu" else 1.0


def exposed_s(wire_s: Floats, window_s: Floats, num_parts: Floats, contention: float = 0.0) -> Floats:
    """Seconds by which a collective in equal parts, one after the other, lengthens a computation in as many parts.

    Exact for both usual pipelines, which mirror each other: a bucketed reduction, whose part i starts when part i of
    the backward pass is done (arXiv 2006.15704, section 3.2), and a prefetched gather, whose part i + 1 runs under part
    i of the computation (arXiv 2304.11277, section 3.3). The last reduction and the first gather meet no computation;
    each other part sticks out by what it is longer than its computation, or costs what the contention takes.

    Args:
        wire_s: Of all parts together.
        window_s: The computation, of all parts together, undisturbed.
        num_parts: 1 or more.
        contention: Relative slowdown of computation while a collective runs; see ``CONTENTION``.
    """
    stolen_s = wire_s * (contention / (1 + contention))
    return (wire_s + (num_parts - 1) * np.maximum(wire_s - window_s, stolen_s)) / num_parts
