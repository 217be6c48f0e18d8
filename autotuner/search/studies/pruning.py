"""When a candidate of a study should end before its target: what is known of the others says that it loses."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial

_NUM_OTHERS = 5
"""Curves that a candidate is compared with at least, as of Optuna's ``MedianPruner``."""


_NUM_STEPS = 3
"""Before which a candidate's speed is not known: the first step allocates, and one more is no median."""


class Pruning:
    """Two rules, both in time and in accelerator-hours, since either may be what somebody has least of.

    A candidate ends that can no longer lie on the front: another came to the target with less of both than it has used.
    And it ends whose loss lies above the median of the others' best losses at equal time and at equal accelerator-hours
    (the median stopping rule of Google Vizier, doi 10.1145/3097983.3098043).

    Args:
        request: What was asked for.
        others: Trials that have ended.
    """

    def __init__(self, request: OptimizerStudyRequest, others: Sequence[OptimizerTrial]) -> None:
        self._window = request.window_sequences
        self._reached = [trial for trial in others if trial.reached is not None]
        self._best = [_BestLosses(trial, self._window) for trial in others if trial.curve.num_steps > 1]

    def verdict(self, trial: OptimizerTrial) -> str | None:
        """Why the running trial should end, as a sentence without a full stop; None where it goes on."""
        curve = trial.curve
        if curve.num_steps < _NUM_STEPS:
            return None
        time_s = curve.num_steps * curve.step_time_s
        hours = time_s * trial.world_size / 3600
        for other in self._reached:
            took = other.reached
            if took and took.time_s <= time_s and took.accelerator_hours <= hours:
                return f"number {other.number} came to the target sooner and for less, after {took.time_s:.3g} s"
        is_warm = curve.num_samples >= self._window and curve.num_steps > trial.candidate.optimizer.warmup_steps
        return self._above_median(trial, time_s, hours) if is_warm else None

    def _above_median(self, trial: OptimizerTrial, time_s: float, hours: float) -> str | None:
        width = -(-self._window // trial.candidate.global_batch_size)
        loss = statistics.fmean(trial.curve.losses[-width:])
        by_time = [best for one in self._best if (best := one.at(time_s)) is not None]
        by_hours = [best for one in self._best if (best := one.at(hours * 3600 / one.world_size)) is not None]
        if min(len(by_time), len(by_hours)) < _NUM_OTHERS:
            return None
        median = min(statistics.median(by_time), statistics.median(by_hours))
        if loss <= max(statistics.median(by_time), statistics.median(by_hours)):
            return None
        return f"its loss of {loss:.4g} after {time_s:.3g} s lies above {median:.4g}, the median of the others' by then"


class _BestLosses:
    """The lowest loss of a trial by each of its steps."""

    def __init__(self, trial: OptimizerTrial, window_sequences: int) -> None:
        self.world_size = trial.world_size
        self._step_time_s = trial.curve.step_time_s
        self._has_reached = trial.reached is not None
        self._losses = trial.curve.smoothed(window_sequences)

    def at(self, time_s: float) -> float | None:
        """After so many seconds; None where it ended before, elsewhere than at the target."""
        index = int(time_s / self._step_time_s) - 1
        if index >= len(self._losses) and not self._has_reached:
            return None
        return min(self._losses[: max(1, index + 1)])
