"""Whether a step time has settled: what tells a warm-up from the steps that count."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["is_stationary"]

_WIDEST_WINDOW = 3
"""The smallest two windows whose ranks can differ at the 5 % level: one order in C(6, 3) = 20 puts all of one first."""


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
