"""Cores: what Python, dispatch and waking threads add to a micro-batch, where no host runs ahead of a device."""

from __future__ import annotations

import numpy as np

from autotuner.costmodel.columns import Floats, LayoutColumns
from autotuner.domain.jobs.core_times import CoreTimes, PassTimes
from autotuner.domain.layouts.choice import Recompute

__all__ = ["ends_host_s", "layer_host_s", "recompute_host_s"]


def layer_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Forward and backward of one layer, without what recomputing adds."""
    forward_s, backward_s = _split_s(x, core, "layer")
    return core.layer.forward_s + forward_s, core.layer.backward_s + backward_s


def ends_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Forward and backward of embedding, last norm, output and loss together."""
    forward_s, backward_s = _split_s(x, core, "ends")
    return core.ends.forward_s + forward_s, core.ends.backward_s + backward_s


def recompute_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """What a layer that recomputes adds forward, and backward beyond the kernels that run again.

    Selective recomputation watches every operation, and calls each again to see whether its result was kept; full
    recomputation counts the host's part of a forward pass with the rest of it.
    """
    selective, full = x.recompute == Recompute.SELECTIVE, x.recompute == Recompute.FULL
    calling_s, _ = layer_host_s(x, core)
    watching_s = core.selective.forward_s * selective + core.full.forward_s * full
    return watching_s, (core.selective.backward_s + calling_s) * selective + core.full.backward_s * full


def _split_s(x: LayoutColumns, core: CoreTimes, part: str) -> tuple[Floats, Floats]:
    """What tensor ranks add: a straight line between the degrees that were measured, the last one beyond them."""
    forward_s, backward_s = np.zeros(len(x)), np.zeros(len(x))
    for sequence_parallel in (False, True):
        measured = sorted(
            (one for one in core.split if one.sequence_parallel == sequence_parallel), key=lambda one: one.num_ranks
        )
        if not measured:
            continue
        rows = x.sequence_parallel == sequence_parallel
        ranks = [1, *(one.num_ranks for one in measured)]
        times: list[PassTimes] = [getattr(one, part) for one in measured]
        degree = x.tensor_parallel_degree[rows]
        forward_s[rows] = np.interp(degree, ranks, [0.0, *(one.forward_s for one in times)])
        backward_s[rows] = np.interp(degree, ranks, [0.0, *(one.backward_s for one in times)])
    return forward_s, backward_s
