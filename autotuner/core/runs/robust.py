"""RobustMeasurement: what a trial's layout reached while a fault trace befell its links."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core import check
from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.jobs.link_health import LinkHealth
from autotuner.errors import InvalidInput

__all__ = ["MeasuredStretch", "RobustMeasurement"]

_Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStretch:
    """Steps in a row in which no link changed.

    Attributes:
        first_step: Of the trace, from 0.
        links: Those that were not healthy.
        step_times_s: Of each step, on the slowest rank.
    """

    first_step: int
    links: tuple[LinkHealth, ...]
    step_times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustMeasurement:
    """Steps under a fault trace, re-plans and what they cost included.

    Attributes:
        step_time_s: Mean of all steps of the trace: their total over their number, so that slow ones weigh what they
            took.
        mfu: Model FLOP / (step time x sum of the ranks' reference peaks): robust MFU.
        tokens_per_s: Of the whole job, over the whole trace.
        num_steps: Of the trace.
        stretches: The trace, cut where a link changes.
    """

    step_time_s: float
    mfu: float
    tokens_per_s: float
    num_steps: int
    stretches: tuple[MeasuredStretch, ...]

    def __post_init__(self) -> None:
        check.positive(self, "step_time_s", "num_steps")

    @classmethod
    def of(
        cls, trace: FaultTrace, step_times_s: Sequence[float], *, model_flop: float, peak_flop_per_s: float, tokens: int
    ) -> RobustMeasurement:
        """What the steps of a trace come to.

        Args:
            trace: What befell the links.
            step_times_s: Of every step of it, in order.
            model_flop: Of one step.
            peak_flop_per_s: Sum of the ranks' reference peaks.
            tokens: Of one step.

        Raises:
            InvalidInput: There are not as many times as the trace has steps.
        """
        if len(step_times_s) != trace.num_steps:
            raise InvalidInput("step_times_s", len(step_times_s), "must be one per step of the trace", trace.num_steps)
        mean_s = statistics.fmean(step_times_s)
        return cls(
            step_time_s=mean_s,
            mfu=model_flop / (mean_s * peak_flop_per_s),
            tokens_per_s=tokens / mean_s,
            num_steps=trace.num_steps,
            stretches=tuple(
                MeasuredStretch(
                    first_step=stretch.first_step,
                    links=stretch.links,
                    step_times_s=tuple(step_times_s[stretch.first_step :][: stretch.num_steps]),
                )
                for stretch in trace.stretches()
            ),
        )

    @property
    def step_time_error_s(self) -> float:
        """Half the 95 % interval of the mean, from how the steps of each stretch scatter.

        Stretches differ from each other on purpose, so only what differs inside one is chance; the first two steps of a
        stretch, in which a change is found and planned for, count with the others.
        """
        squares = sum(_sum_of_squares(stretch.step_times_s) for stretch in self.stretches)
        free = sum(len(stretch.step_times_s) - 1 for stretch in self.stretches)
        return _Z95 * math.sqrt(squares / max(1, free) / self.num_steps)

    @property
    def relative_error(self) -> float:
        """The same as a share of the mean."""
        return self.step_time_error_s / self.step_time_s


def _sum_of_squares(times_s: Sequence[float]) -> float:
    mean_s = statistics.fmean(times_s)
    return sum((time_s - mean_s) ** 2 for time_s in times_s)
