"""How many steps a trial runs: until their time is stationary, and its median known well enough."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotuner.core.runs.periods import levelled, shows_average
from autotuner.core.runs.trial_spec import TrialSettings

__all__ = ["Pace", "half_interval_s", "is_stationary"]

_WIDEST_WINDOW = 3
"""The smallest two windows whose ranks can differ at the 5 % level: one order in C(6, 3) = 20 puts all of one first."""

_CONFIDENCE = 0.95


class Pace:
    """A state machine that sees step times, knows no clock, and says which step counts and when enough do.

    Ranks that are told the same times decide alike, so none has to tell the others. Where replicas average their
    parameters behind every ``period``-th step, one of these counts before it is done, however few steps are asked for.
    """

    def __init__(self, settings: TrialSettings, *, period: int = 1) -> None:
        self._settings = settings
        self._period = period
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
        steps = range(len(self._warmup_s), len(self._warmup_s) + num_steps)
        if num_steps < settings.measured_steps or not shows_average(steps, self._period):
            return False
        if num_steps >= settings.max_measured_steps or sum(self._measured_s) >= settings.measuring_budget_s:
            return True
        times_s = levelled(steps, self._measured_s, self._period)
        half_s = half_interval_s(times_s)
        return half_s is not None and half_s <= settings.target_interval * statistics.median(times_s)

    def add(self, step_time_s: float) -> None:
        """One more step ran; it counts if the pace was warm before it."""
        (self._measured_s if self.is_warm else self._warmup_s).append(step_time_s)


def is_stationary(step_times_s: Sequence[float], *, resolution: float) -> bool:
    """Whether the latest steps take as long as those just before them.

    Two windows that follow each other are compared, of three steps or of as many as there are. They agree where
    their medians differ by less than ``resolution``, as a share, or where their ranges overlap. Ranges that lie
    apart are the extreme of the rank-sum statistic of Mann and Whitney (Annals of Mathematical Statistics 18, 1947,
    table I: 1 chance in 20 for three against three, on either side), so any trend that outgrows the noise of three
    steps is seen, a fall as well as a rise. Nothing is assumed of the noise, and one disturbed step moves no median
    of three. Windows of a single step have no range: on a quiet device two equal steps suffice.

    The first step never counts: it compiles, allocates and exchanges shapes.
    """
    times_s = step_times_s[1:]
    width = min(_WIDEST_WINDOW, len(times_s) // 2)
    if width == 0:
        return False
    earlier, later = times_s[-2 * width : -width], times_s[-width:]
    before_s, after_s = statistics.median(earlier), statistics.median(later)
    if abs(before_s - after_s) <= resolution * max(before_s, after_s):
        return True
    return width > 1 and min(earlier) <= max(later) and min(later) <= max(earlier)


def half_interval_s(times_s: Sequence[float]) -> float | None:
    """Half the 95 % confidence interval of the median; None where even the extremes bound it less surely (below six).

    The interval runs between two order statistics, equally far from both ends: the true median lies outside with the
    probability that so few of n fair coins show heads. It assumes nothing but independent steps.

    Source: W. J. Conover, Practical Nonparametric Statistics, 3rd edition (1999), section 3.2.
    """
    ordered, num_outside = sorted(times_s), _num_outside(len(times_s))
    if num_outside is None:
        return None
    return (ordered[-1 - num_outside] - ordered[num_outside]) / 2


def _num_outside(num_steps: int) -> int | None:
    """Steps that the interval leaves out at each end."""
    chance, num_outside = 0.0, None
    for heads in range(num_steps // 2):
        chance += math.comb(num_steps, heads) / 2**num_steps
        if 2 * chance > 1 - _CONFIDENCE:
            break
        num_outside = heads
    return num_outside
