"""Bubbles of pipelines whose schedule is planned around slow links.

A plan leaves only time that cannot be hidden: a step is as long as the longest of a few chains of passes that some rank
must run in order. So the formula hardly ever gives more than the planner's own makespan, and at most a few percent less
(tests/unit/costmodel/step/test_step.py bounds the error over random pipelines with slow links). It takes a hundredth of
the planner's time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers
from autotuner.costmodel.step.sends import Hops, StagePasses

NOTICED = 0.5
"""Share of a forward pass from which the delay of a send is planned for, as in the trial job. Nominal sends take
less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Plans of the adaptive schedule, which follows from the times of passes, as columns of shape (layouts, ranks).

    All layouts have equally many pipeline ranks, and each rank holds one stage.
    """

    forward_s: Floats
    """Time of each rank's forward pass (F), including the time for which its send blocks it."""
    input_s: Floats
    """Time of each rank's input gradient (I), including the time for which its send blocks it."""
    weight_s: Floats
    """Time of each rank's weight gradient (W)."""
    flies_s: Floats
    """Time of a transfer from a rank to the next during computation, with the copies of the receiving rank; one less
    than there are ranks."""
    warm_up: Integers
    """Number of forward passes before the first I of each rank, as in ``pipeline_schedules.adaptive.warm_up``. The
    planner lets no rank keep more micro-batches than the first rank runs ahead."""

    @classmethod
    def of(cls, passes: StagePasses, hops: Hops, extra_slack: Integers, num_micro_batches: Integers) -> Planned:
        """Return the plans of the adaptive schedule that follow from the times of passes and of sends between ranks.

        Args:
            passes: Seconds of one micro-batch's passes in each stage.
            hops: Times of the sends between neighbouring ranks.
            extra_slack: Forward passes per link that a stage runs ahead, in addition to those that hide the link's
                delay.
            num_micro_batches: Micro-batches in a step of each layout.
        """
        num_ranks = passes.forward_s.shape[1]
        blocks_s, flies_s = hops.blocks_s[:, : num_ranks - 1], hops.flies_s[:, : num_ranks - 1]
        flies_s = flies_s + hops.receives_s[:, : num_ranks - 1]
        nothing = np.zeros((len(blocks_s), 1))
        late = (blocks_s + flies_s) / passes.forward_s[:, :-1]
        slack = 2 + np.where(late > NOTICED, np.ceil(late), 0) + extra_slack[:, None]
        ahead = 1 + np.concatenate([np.cumsum(slack[:, ::-1], axis=1)[:, ::-1], nothing], axis=1)
        return cls(
            forward_s=passes.forward_s + np.concatenate([blocks_s, nothing], axis=1),
            input_s=passes.input_s + np.concatenate([nothing, blocks_s], axis=1),
            weight_s=passes.weight_s,
            flies_s=flies_s,
            warm_up=np.minimum(ahead, num_micro_batches[:, None]).astype(np.int64),
        )

    def step_s(self, num_micro_batches: Integers, carried_s: Floats) -> Floats:
        """Return the seconds of a step: the longest of several chains of passes that some rank must run in order.

        F is a forward pass, I an input gradient, and W a weight gradient. The chains are:

        * A rank starts when the first micro-batch has arrived, and then computes without a pause.
        * A rank waits for its first I. Before that it may run only as many F as its warm-up has.
        * The last I goes back from a rank through all ranks before it. Until it reaches the first rank, that rank has
          run all of its W but one.
        * Each delegate (a process that sends) is busy for a whole transfer, so that only as many transfers run at a
          time as there are delegates.

        Args:
            num_micro_batches: Number of micro-batches in a step of each layout.
            carried_s: Least seconds between transfers over each hop; 0 if no transfer waits for another.
        """
        m = num_micro_batches[:, None].astype(np.float64)
        starts_s = _sums_before(self.forward_s[:, :-1] + self.flies_s)
        back_s = _sums_before(self.input_s[:, :-1] + self.flies_s)
        there_s = starts_s[:, -1:] + self.forward_s[:, -1:]
        returned_s = there_s + (back_s[:, -1:] - back_s) - self.input_s + self.input_s[:, -1:]
        both_s = self.forward_s + self.input_s
        chains = [
            starts_s + m * (both_s + self.weight_s),
            returned_s + m * (self.input_s + self.weight_s) + (m - self.warm_up) * self.forward_s,
            starts_s + m * both_s + back_s + self.weight_s[:, :1],
            starts_s[:, :-1] + self.forward_s[:, :-1] + m * carried_s,
        ]
        return np.max(np.concatenate(chains, axis=1), axis=1)  # type: ignore[no-any-return]  # an array of seconds


def _sums_before(seconds: Floats) -> Floats:
    """Return the sum of all columns before each column, with one column more than the input."""
    return np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
