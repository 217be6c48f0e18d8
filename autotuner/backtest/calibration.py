"""What the known layouts of a replay teach about all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotuner.backtest.replay import Replay
from autotuner.core.columns import Booleans, Floats
from autotuner.costmodel.uncertainty import Z80, time_error
from autotuner.search.sampler.memory_prior import MemoryTrial, learn_peaks, memory_prior
from autotuner.search.sampler.time_prior import learn_times, scale_inflation, time_prior


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibrated:
    """What is believed of each layout of a replay.

    Attributes:
        relative_error: Half-width e of the 80 % interval of each step time t: measured within t / (1 + e) .. t (1 + e).
        fits: More likely to fit in memory than not.
    """

    step_time_s: Floats
    relative_error: Floats
    fits: Booleans


def calibrated(replay: Replay) -> Calibrated:
    """The predictions, corrected as the sampler corrects them once it has seen the known layouts."""
    predictions = replay.predictions
    if not replay.known.size:
        return Calibrated(
            step_time_s=predictions.step_time.total_s,
            relative_error=predictions.relative_error,
            fits=predictions.fits,
        )
    step_time_s, relative_error = _times(replay)
    return Calibrated(step_time_s=step_time_s, relative_error=relative_error, fits=_fits(replay))


def _times(replay: Replay) -> tuple[Floats, Floats]:
    timed = {
        layout: float(replay.step_time_s[layout]) for layout in replay.known.tolist() if not replay.ran_out(layout)
    }
    belief = learn_times(time_prior(replay.layouts, replay.predictions, time_error(replay.job)), timed)
    estimate = belief.at(np.arange(len(replay)))
    return np.exp(estimate.mean), np.exp(Z80 * scale_inflation(belief) * np.sqrt(estimate.variance)) - 1


def _fits(replay: Replay) -> Booleans:
    limit_bytes = float(replay.job.cluster.accelerator.memory_bytes)
    trials = {layout: MemoryTrial(fits=not replay.ran_out(layout)) for layout in replay.known.tolist()}
    belief = learn_peaks(memory_prior(replay.layouts, replay.predictions.memory), limit_bytes, trials)
    fits: Booleans = belief.at(np.arange(len(replay))).mean <= np.log(limit_bytes)
    return fits
