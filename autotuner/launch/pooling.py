"""One measurement from several runs of the same trial (A/A)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotuner.core.measurement import Measurement


def pooled(runs: Sequence[Measurement]) -> Measurement:
    """The median of the runs' medians, with their relative distance as the noise floor; one run stays as it is.

    What belongs to a step's time follows it. Memory is the most of any run. The rest, where the step went included, is
    that of the run whose median is the pooled one; of two in the middle, of the faster. Steps under a fault trace are
    the first run's, which alone replays it.
    """
    if len(runs) == 1:
        return runs[0]
    times_s = [run.step_time_s for run in runs]
    step_time_s = statistics.median(times_s)
    middle = runs[times_s.index(statistics.median_low(times_s))]
    faster = middle.step_time_s / step_time_s
    return replace(
        middle,
        step_time_s=step_time_s,
        step_time_spread_s=max(run.step_time_spread_s for run in runs),
        step_time_interval_s=_interval_s(runs),
        num_steps=sum(run.num_steps for run in runs),
        tokens_per_s=middle.tokens_per_s * faster,
        model_flop_per_s=middle.model_flop_per_s * faster,
        mfu=middle.mfu * faster,
        hfu=middle.hfu * faster,
        peak_bytes=_most(run.peak_bytes for run in runs),
        reserved_bytes=_most(run.reserved_bytes for run in runs),
        foreign_cpu_share=max(run.foreign_cpu_share for run in runs),
        noise_floor=(max(times_s) - min(times_s)) / step_time_s,
        num_disturbed=sum(run.num_disturbed for run in runs),
        robust=runs[0].robust,
    )


def _most(runs: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The most that each rank held in any run; runs of a trainer may not tell it, or not of as many ranks."""
    known = [run for run in runs if run]
    return tuple(map(max, zip(*known, strict=False)))


def _interval_s(runs: Sequence[Measurement]) -> float | None:
    """Half the interval of the pooled median: no less than what lies between the runs, which no run sees by itself."""
    within_s = [run.step_time_interval_s for run in runs if run.step_time_interval_s is not None]
    if not within_s:
        return None
    times_s = [run.step_time_s for run in runs]
    return max(math.hypot(*within_s) / len(within_s), (max(times_s) - min(times_s)) / 2)
