"""What of a collective's wire time computation hides."""

from __future__ import annotations

import numpy as np

from autotuner.core.accelerator import Accelerator
from autotuner.core.columns import Floats


def overlap_share(accelerator: Accelerator) -> float:
    """Share of a computation's time under which a collective makes progress.

    1 on GPUs, whose copy engines and network cards work beside the matrix units; 0 on a CPU, where the core that
    computes also moves the bytes.
    """
    return 0.0 if accelerator.kind == "cpu" else 1.0


def exposed_s(wire_s: Floats, window_s: Floats, num_parts: Floats) -> Floats:
    """Seconds by which a collective in equal parts, one after the other, lengthens a computation in as many parts.

    Exact for both usual pipelines, which mirror each other: a bucketed reduction, whose part i starts when part i of
    the backward pass is done (arXiv 2006.15704, section 3.2), and a prefetched gather, whose part i + 1 runs under part
    i of the computation (arXiv 2304.11277, section 3.3). The last reduction and the first gather meet no computation;
    each other part sticks out by what it is longer than its computation.

    Args:
        wire_s: Wire time of all parts together.
        window_s: Computation of all parts together, undisturbed.
        num_parts: 1 or more.
    """
    return (wire_s + (num_parts - 1) * np.maximum(wire_s - window_s, 0.0)) / num_parts
