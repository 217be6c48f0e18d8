"""How many steps a trial runs: a state machine that sees step times and knows no clock."""

from __future__ import annotations

import statistics

from autotuner.domain.trial import TrialSettings
from trials.measurement.median import half_interval_s
from trials.measurement.stationary import is_stationary

__all__ = ["Pace"]


class Pace:
    """Warms up until steps are stationary, then measures until their median is known well enough.

    Ranks that are told the same times decide alike, so none has to tell the others.
    """

    def __init__(self, settings: TrialSettings) -> None:
        self._settings = settings
        self._warmup_s: list[float] = []
        self._measured_s: list[float] = []

    @property
    def num_warmup_steps(self) -> int:
        """Steps before timing started, or so far."""
        return len(self._warmup_s)

    @property
    def is_warm(self) -> bool:
        """Timing has started: the next step counts."""
        settings, num_steps = self._settings, len(self._warmup_s)
        if self._measured_s:
            return True
        if num_steps < settings.warmup_steps:
            return False
        if num_steps >= settings.max_warmup_steps or sum(self._warmup_s[1:]) >= settings.measuring_budget_s:
            return True
        return is_stationary(self._warmup_s, resolution=settings.target_interval)

    @property
    def is_done(self) -> bool:
        """Enough steps were measured."""
        settings, num_steps = self._settings, len(self._measured_s)
        if num_steps < settings.measured_steps:
            return False
        if num_steps >= settings.max_measured_steps or sum(self._measured_s) >= settings.measuring_budget_s:
            return True
        half_s = half_interval_s(self._measured_s)
        return half_s is not None and half_s <= settings.target_interval * statistics.median(self._measured_s)

    def add(self, step_time_s: float) -> None:
        """One more step ran; it counts if the pace was warm before it."""
        (self._measured_s if self.is_warm else self._warmup_s).append(step_time_s)
