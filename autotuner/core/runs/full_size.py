"""Full-size estimate: what small trials and the model together say of a layout that nobody ran. Never a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from autotuner.core import check

__all__ = ["FullSizeEstimate"]

_95_OF_80 = 1.9600 / 1.2816
"""Standard deviations from the median to an end of a 95 % interval of a normal distribution, over those of 80 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullSizeEstimate:
    """Step time and peak of a layout at full size, as small trials correct the model's prediction.

    Attributes:
        step_time_s: Expected seconds of a step: the median of what is believed.
        relative_error: Half-width e of the 80 % interval, which is step_time_s / (1 + e) .. step_time_s * (1 + e), as
            that of a ``Prediction``.
        peak_bytes: Expected peak of the fullest rank, what no allocator sees counted as in ``Memory``.
        fit_probability: How likely the peak is to be within the accelerator's memory, 0..1.
        num_small_trials: Small trials that told something of the step time.
        measured_parts: Parts of ``StepTime`` that a small trial of this very layout ran just as they are here.
        modelled_parts: The other parts that the step has: the model's word, corrected by what all trials teach.
        measured_share: Share of the step in measured parts, by the model's breakdown, 0..1.
        own_error: Half-width as ``relative_error``, of what is uncertain beside layouts that were estimated with it:
            errors that all share do not change their order. None where it was not told.
    """

    step_time_s: float
    relative_error: float
    peak_bytes: float
    fit_probability: float
    num_small_trials: int
    measured_parts: tuple[str, ...] = ()
    modelled_parts: tuple[str, ...] = ()
    measured_share: float = 0.0
    own_error: float | None = None

    def __post_init__(self) -> None:
        check.positive(self, "step_time_s", "peak_bytes")
        check.non_negative(self, "relative_error", "num_small_trials")
        check.fraction(self, "fit_probability", "measured_share")

    @property
    def order_error_s(self) -> float:
        """Half the 95 % interval of the step time beside those of the layouts that were estimated with it."""
        own = self.relative_error if self.own_error is None else self.own_error
        reach = float((1 + own) ** _95_OF_80)
        return self.step_time_s * (reach - 1 / reach) / 2

    @property
    def interval_80_s(self) -> tuple[float, float]:
        """Where the step time of the layout itself would lie in four of five cases."""
        return self.step_time_s / (1 + self.relative_error), self.step_time_s * (1 + self.relative_error)

    @property
    def interval_95_s(self) -> tuple[float, float]:
        """Where it would lie in nineteen of twenty."""
        reach = (1 + self.relative_error) ** _95_OF_80
        return self.step_time_s / reach, self.step_time_s * reach
