"""ChangeTest: finds, step by step, that a noisy series of times has moved to another level."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

LEARNED_STEPS = 5
"""Steps from which the first nominal level is learned; a fault in these is not seen."""

_KEPT_STEPS = 32
"""A nominal level is the median of so many steps, so that it follows slow changes such as clocks that drift apart."""

_FINEST = 1 / 8
"""Least scale of the noise, as a share of the shift that matters: a few steps may look quieter than they are."""

_AGREEING = 0.25
"""Share of a delay by which two steps with the same delay may differ, as by jitter."""

_NORMAL_MAD = 1.4826
"""Standard deviations of normal noise per median absolute deviation (1 / 0.6745, any table of the normal law)."""


def threshold_for(false_alarms_per_step: float, num_tests: int) -> float:
    """Return what the sum of log-likelihood ratios must reach, so that nominal steps raise no more alarms than that.

    The mean time to a false alarm of a sum that restarts at 0 is at least the exponential of its threshold (Lorden,
    1971, Annals of Mathematical Statistics 42, theorem 2), whatever law the ratios are of. Clipped ones only wait
    longer.
    """
    return math.log(max(1, num_tests) / false_alarms_per_step)


class NominalLevel:
    """Level and noise of a series while nothing is wrong: median and median absolute deviation of 32 steps."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT_STEPS)

    @property
    def is_learned(self) -> bool:
        """Whether there are enough steps to compare with."""
        return len(self._values) >= LEARNED_STEPS

    @property
    def level_s(self) -> float:
        """The median; 0 without steps."""
        return median(self._values) if self._values else 0.0

    @property
    def scale_s(self) -> float:
        """The standard deviation of normal noise of this size; larger for few steps, which know it badly."""
        level_s, count = self.level_s, len(self._values)
        spread_s = median(abs(value - level_s) for value in self._values)
        return _NORMAL_MAD * spread_s * count / (count - 1)

    def add(self, value_s: float) -> None:
        """Add a step."""
        self._values.append(value_s)

    def forget(self, num_steps: int) -> None:
        """Remove the last steps: they were not nominal."""
        for _ in range(min(num_steps, len(self._values))):
            self._values.pop()

    def restart(self, values_s: tuple[float, ...]) -> None:
        """Keep these steps alone."""
        self._values.clear()
        self._values.extend(values_s)


class _Sum:
    """The log-likelihood ratios of a shift in one direction, summed over the steps since nothing spoke for it.

    Noise that is not normal has more outliers than its scale tells. No step adds more than outliers have turned out to
    be rare, nor more than its part of the threshold, which ``num_steps`` steps reach at least.
    """

    def __init__(self, threshold: float, num_steps: int) -> None:
        self._threshold = threshold
        self._most = threshold / num_steps
        self._num_steps = 0
        self._num_outliers = 0
        self._pending = 0
        self._sum = 0.0

    def add(self, off_s: float, shift_s: float, scale_s: float) -> bool:
        """Add a step ``off_s`` away from the level in this direction; return whether the shift is certain."""
        ratio = shift_s * (off_s - shift_s / 2) / scale_s**2
        self._sum = max(0.0, self._sum + min(self._rareness(), ratio))
        self._num_steps += 1
        self._pending += off_s > shift_s / 2
        if self._sum == 0.0:  # it was none
            self._num_outliers, self._pending = self._num_outliers + self._pending, 0
        return self._sum >= self._threshold * (1 - 1e-9)  # equal parts sum to a little less

    def restart(self) -> None:
        """Begin again: the shift was one."""
        self._sum, self._pending = 0.0, 0

    def _rareness(self) -> float:
        """Return minus the logarithm of the share of outliers, at first as rare as one part asks."""
        rarest = math.exp(self._most)
        return min(self._most, math.log((rarest + self._num_steps) / (1 + self._num_outliers)))


class ChangeTest:
    """Follows how far a series lies above its nominal level, by a sequential test in both directions.

    Each step adds the log-likelihood ratio of a shift against none to a sum that never falls below 0 (CUSUM: Page,
    1954, Biometrika 41), under normal noise of the scale that was learned. One outlier, however far, never moves the
    level: as many steps must agree as ``num_steps``, and more where outliers were seen before.

    Args:
        threshold: From ``threshold_for``.
        num_steps: Steps that a change takes at least.
        level_s: Seconds above the nominal level that are known at the start.

    Attributes:
        level_s: Seconds above the nominal level.
    """

    def __init__(self, threshold: float, *, num_steps: int = 2, level_s: float = 0.0) -> None:
        self.level_s = level_s
        self._num_steps = num_steps
        self._nominal = NominalLevel()
        self._later, self._earlier = _Sum(threshold, num_steps), _Sum(threshold, num_steps)
        self._recent: deque[float] = deque(maxlen=num_steps + 1)
        self._waited = False

    def above_s(self, value_s: float) -> float:
        """Return how far a value lies above the nominal level; 0 while that is learned."""
        return value_s - self._nominal.level_s if self._nominal.is_learned else 0.0

    def add(self, value_s: float, shift_s: float, *, doubt_s: float = 0.0) -> bool:
        """Add a step and return whether the level has changed with it.

        Args:
            value_s: Of this step.
            shift_s: The least shift that matters. Less than half of it is never found.
            doubt_s: Part of the value above its level that has another cause.
        """
        self._recent.append(value_s)
        if self._nominal.is_learned and self._is_changed(value_s, shift_s, max(0.0, doubt_s)):
            return self._moved(shift_s)
        self._waited = False
        self._nominal.add(value_s - self.level_s)
        return False

    def settle(self, level_s: float) -> None:
        """Take over a level that another test found."""
        self.level_s, self._waited = level_s, False
        self._later.restart()
        self._earlier.restart()

    def _is_changed(self, value_s: float, shift_s: float, doubt_s: float) -> bool:
        scale_s = max(self._nominal.scale_s, _FINEST * shift_s)
        off_s = value_s - self._nominal.level_s - self.level_s
        off_s = max(0.0, off_s - doubt_s) if off_s > 0 else off_s
        is_later, is_earlier = self._later.add(off_s, shift_s, scale_s), self._earlier.add(-off_s, shift_s, scale_s)
        return is_later or is_earlier

    def _moved(self, shift_s: float) -> bool:
        """Take the new level that the last steps agree on, or most of them if one was disturbed."""
        *_, last_s = recent = list(self._recent)[-self._num_steps :]
        if max(recent) - min(recent) > max(shift_s / 2, _AGREEING * abs(last_s)) and not self._waited:
            self._waited = True  # the next step says which of them it was
            return False
        before_s, seen_s = self.level_s, median(self._recent) if self._waited else min(recent)
        self._waited = False
        self._nominal.forget(self._num_steps - 1)  # they were of the new level
        self._later.restart()
        self._earlier.restart()
        above_s = seen_s - self._nominal.level_s
        self.level_s = above_s if above_s >= shift_s / 2 else 0.0
        if above_s <= -shift_s / 2:  # what was taken for nominal was not
            self._nominal.restart(tuple(recent))
        return self.level_s != before_s
