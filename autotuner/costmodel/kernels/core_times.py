"""Cores: what Python, dispatch and waking threads add to a micro-batch, where no host runs ahead of a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autotuner.core.accelerator import CoreTimes, SplitTimes
from autotuner.core.choices import Recompute
from autotuner.core.columns import Floats, Integers, LayoutColumns


def layer_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Forward and backward of one layer, without what recomputing adds."""
    forward_s = core.layer.forward_s + _split_s(x, core, lambda split: split.layer.forward_s)
    backward_s = core.layer.backward_s + _split_s(x, core, lambda split: split.layer.backward_s)
    return forward_s, backward_s


def ends_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """Forward and backward of embedding, last norm, output and loss together."""
    forward_s = core.ends.forward_s + _split_s(x, core, lambda split: split.ends.forward_s)
    backward_s = core.ends.backward_s + _split_s(x, core, lambda split: split.ends.backward_s)
    return forward_s, backward_s


def recompute_host_s(x: LayoutColumns, core: CoreTimes) -> tuple[Floats, Floats]:
    """What a layer that recomputes adds forward, and backward beyond the kernels that run again.

    Selective recomputation watches every operation, and calls each again to see whether its result was kept, as those
    of collectives are; full recomputation counts the host's part of a forward pass with the rest of it.
    """
    selective, full = x.recompute == Recompute.SELECTIVE, x.recompute == Recompute.FULL
    calling_s = core.layer.forward_s + _split_s(x, core, lambda split: split.dispatch_s)
    watching_s = core.selective.forward_s * selective + core.full.forward_s * full
    return watching_s, (core.selective.backward_s + calling_s) * selective + core.full.backward_s * full


def shard_host_s(num_ranks: Integers, core: CoreTimes) -> tuple[Floats, Floats]:
    """What FSDP adds to gathering a layer and to reducing its gradients, by steps of a ring over so many shards."""
    if core.sharded is None:
        return np.zeros(len(num_ranks)), np.zeros(len(num_ranks))
    steps = (num_ranks - 1) / (core.sharded.num_ranks - 1)
    return steps * core.sharded.gather_s, steps * core.sharded.reduce_s


def _split_s(x: LayoutColumns, core: CoreTimes, seconds: Callable[[SplitTimes], float]) -> Floats:
    """What tensor ranks add: a straight line between the degrees that were measured, the last one beyond them."""
    added_s = np.zeros(len(x))
    for sequence_parallel in (False, True):
        measured = [one for one in core.split if one.sequence_parallel == sequence_parallel]
        by_ranks = {1: 0.0} | {one.num_ranks: seconds(one) for one in measured}
        ranks, rows = sorted(by_ranks), x.sequence_parallel == sequence_parallel
        added_s[rows] = np.interp(x.tensor_parallel_degree[rows], ranks, [by_ranks[n] for n in ranks])
    return added_s
