"""Bubbles of pipelines: closed formulas for all schedules.

Each formula is the length of the longest of a few chains of passes through the pipeline, minus the time in which the
rank itself computes. For equal ranks the formulas are exact. Their error for unequal ranks and slow links is bounded by
tests/unit/costmodel/step/test_step.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.shared.table import taken


def rank_bubble_s(
    x: LayoutColumns, num_micro_batches: Integers, rank: Integers, own: Passes, others: Passes, send_s: Floats
) -> Floats:
    """Return the seconds of a step in which one pipeline rank waits for other ranks and for sends.

    A step lasts as long as the rank with the largest sum of computation and waiting. If all ranks have equally many
    layers, this rank is the first or the last one.

    If sends run during computation, the cost of sends is the result minus the result with a ``send_s`` of 0. If sends
    block computation (Megatron-LM without overlap), pass a ``send_s`` of 0, and add the time of each send to the
    forward pass or the input gradient before it. With v stages per rank, each micro-batch has v sends after forward
    passes and v sends after input gradients. The first rank has one send less after its input gradients, and the last
    rank one less after its forward passes.

    Args:
        x: Layouts.
        num_micro_batches: Micro-batches in a step of each layout.
        rank: Number of one pipeline rank of each layout, from 0.
        own: Passes of the stages of that rank.
        others: Sum of the passes of the stages of all other ranks, which count as equal among themselves.
        send_s: One-way delay between neighbouring stages.
    """
    bubble_s = np.zeros(len(x))
    whole = _Rank(
        p=x.pipeline_parallel_degree,
        v=x.virtual_stages_per_rank,
        m=num_micro_batches,
        r=rank,
        send_s=send_s,
        own=own,
        others=others,
    )
    for schedule, form in _FORMS.items():
        rows = np.flatnonzero((x.pipeline_schedule == schedule) & (x.pipeline_parallel_degree > 1))
        if len(rows) == len(x):  # the usual case, without a copy of every column
            return form(whole)
        if len(rows):
            bubble_s[rows] = form(taken(whole, rows))
    return bubble_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One pipeline rank of p ranks, with v stages and m micro-batches, and a delay of ``send_s`` to its neighbours."""

    p: Integers
    v: Integers
    m: Integers
    r: Integers
    send_s: Floats
    own: Passes
    others: Passes

    @property
    def before(self) -> Floats:
        """The share of the other ranks that come before this rank."""
        return self.r / (self.p - 1)

    @property
    def num_behind(self) -> Integers:
        """The number of ranks after this rank."""
        return self.p - 1 - self.r


def _gpipe_s(x: _Rank) -> Floats:
    """Return the time of one micro-batch on all other ranks, forward and backward (arXiv 2104.04473, section 2.2)."""
    return x.others.total_s + 2 * (x.p - 1) * x.send_s


def _one_f_one_b_s(x: _Rank) -> Floats:
    """Return the bubble of 1F1B: the longer of two chains of passes, minus this rank's own passes.

    The first chain fills the pipeline, runs all passes of this rank, and drains the pipeline; the second sends waves of
    p micro-batches through all ranks. Filling passes the ranks before this rank once each way. The later ranks return
    the first micro-batch after a forward and a backward pass each, while this rank runs one forward pass per later
    rank; the same is true for the last micro-batch and backward passes. With equal ranks the bubble is ``(p - 1)(F +
    B)`` (arXiv 2104.04473, section 2.2).

    1F1B has no slack for sends (arXiv 2504.19232): of every p micro-batches in a row, p - 1 wait for a send each way.
    """
    own, others = x.own, x.others.total_s
    around_s = others + 2 * (x.p - 1) * x.send_s  # through all other ranks and back
    filling_s = x.before * around_s
    returned_s = around_s - filling_s
    hidden_s = x.num_behind * own.forward_s, x.num_behind * own.backward_s
    chain_s = filling_s + _beyond(returned_s, hidden_s[0]) + _beyond(returned_s, hidden_s[1])
    num_waiting = x.m - 1 + (1 - x.m) // x.p  # p - 1 of every p micro-batches after the first
    wave_s = around_s + (x.m - 1) / x.p * (own.total_s + others) + 2 * num_waiting * x.send_s
    return np.maximum(chain_s, wave_s - (x.m - 1) * own.total_s)


def _interleaved_s(x: _Rank) -> Floats:
    """Return the bubble of interleaved 1F1B: 1 / v of 1F1B's (arXiv 2104.04473, section 2.3), and sends.

    There is one send each way per stage except the last. Interleaving has the slack that 1F1B lacks, so that the time
    of sends does not grow with the number of micro-batches.
    """
    return x.others.total_s / x.v + 2 * (x.p * x.v - 1) * x.send_s


def _zb_h1_s(x: _Rank) -> Floats:
    """Return the bubble of ZB-H1: a chain of F and I passes, whose drain hides deferred weight gradients.

    With equal ranks the largest is ``(p - 1) max(F + I - W, F, I)``; the first is ZB-H1's bubble of arXiv 2401.10241,
    table 1.
    """
    own, others, sends_s = x.own, x.others, (x.p - 1) * x.send_s
    filling_s = x.before * (others.forward_s + sends_s)
    returned_s = (1 - x.before) * (others.forward_s + others.input_s + 2 * sends_s)
    chain_s = filling_s + _beyond(returned_s, x.num_behind * own.forward_s)
    chain_s += _beyond(returned_s, x.num_behind * own.backward_s)
    first_s = others.weight_s / (x.p - 1)  # the first rank has one weight gradient left, this one r + 1
    drain_s = _beyond(x.before * (others.input_s + sends_s) + first_s, (x.r + 1) * own.weight_s)
    return chain_s + np.where(x.r > 0, drain_s, 0.0)


def _zero_bubble_s(x: _Rank) -> Floats:
    """Return the bubble of ZB-H1, or with several stages per rank that of the same chain of shorter stages.

    A stage sends its result after 1 / v of its rank's pass, and the deferral is counted in stages too.
    """
    return _zb_h1_s(replace(x, own=x.own * (1 / x.v), others=x.others * (1 / x.v)))


def _zbv_s(x: _Rank) -> Floats:
    """Return the bubble of ZB-V. On ranks other than the first, it is the bubble of equal ranks.

    On the first rank, it is the part that the rank's own passes do not hide. The first rank also holds the last stage.
    It waits when the others' half forwards take longer than its own, and when their half gradients come back later than
    it has passes to run. For equal ranks of F <= I and W <= I the largest is ``(p - 1) max(I / 2, I - W)``, with 5 (p -
    1) - 2 and 6 (p - 1) - 2 sends on the chain. That is exact against the simulator from 2 p - 1 micro-batches on; with
    fewer, fewer weight gradients are there to defer. The bubble rates of arXiv 2401.10241 leave out the start, where
    ranks follow one another.
    """
    others, k = x.others, x.p - 1
    down = others * (0.5 / k)  # a stage without the loss
    up_weight_s, up_s = x.own.weight_s - down.weight_s, x.own.total_s - down.total_s  # the stage with it
    returned_s = others.input_s + 2 * k * x.send_s - up_weight_s
    first_s = 2 * k * x.send_s
    first_s += _beyond(returned_s, k * up_s + down.forward_s)
    first_s += _beyond(returned_s, k * down.backward_s)
    deferred_s = np.minimum(1.0, (x.m - x.p) / k) * others.weight_s
    later_s = np.maximum(
        others.input_s / 2 + (5 * k - 2) * x.send_s, others.input_s - deferred_s + (6 * k - 2) * x.send_s
    )
    return np.where(x.r == 0, first_s, later_s)


def _dualpipev_s(x: _Rank) -> Floats:
    """Return the published bubble, ``(p - 1) (F&B + B - 3 W)`` for 2 p stages (README of deepseek-ai/DualPipe).

    A forward and a backward that run as one pass, F&B, take as long as both here: nothing overlaps inside a rank. Then
    it is ``(p - 1) max(F + 2 I - W, 2 F)`` with the passes of a stage, half of a rank's; the second where forwards are
    the longer ones. Ranks count as equal. With each pass on its own the bubble of the same order of passes is shorter
    by I per rank (tests/unit/test_schedules.py); torch.distributed.pipelining sends after the
    pair.
    """
    others = x.others
    chain_s = np.maximum(others.forward_s + 2 * others.input_s - others.weight_s, 2 * others.forward_s)
    return np.maximum(chain_s, 0.0) / 2 + 6 * (x.p - 1) * x.send_s


def _adaptive_s(x: _Rank) -> Floats:
    """Return the bubble of the adaptive schedule: one forward pass of the ranks before.

    The warm-up hides everything else (arXiv 2504.19232).
    """
    return x.before * (x.others.forward_s + (x.p - 1) * x.send_s)


def _beyond(seconds: Floats, hidden_s: Floats) -> Floats:
    """Return the part of a time that remains if ``hidden_s`` runs at the same moment."""
    return np.maximum(0.0, seconds - hidden_s)


_FORMS: dict[PipelineSchedule, Callable[[_Rank], Floats]] = {
    PipelineSchedule.GPIPE: _gpipe_s,
    PipelineSchedule.ONE_F_ONE_B: _one_f_one_b_s,
    PipelineSchedule.INTERLEAVED_1F1B: _interleaved_s,
    PipelineSchedule.ZERO_BUBBLE: _zero_bubble_s,
    PipelineSchedule.ZBV: _zbv_s,
    PipelineSchedule.DUALPIPEV: _dualpipev_s,
    PipelineSchedule.ADAPTIVE: _adaptive_s,
}
