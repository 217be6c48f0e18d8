"""How far predictions may be off: intervals of step times, and the probability that a layout fits in memory.

The error of a step time is the joint error of its parts: each part's efficiency is known within a factor, and what no
part explains is left as a residual. All factors are log-normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from autotuner.catalog.load import is_validated
from autotuner.costmodel.columns import Floats
from autotuner.costmodel.step.step_time import StepTimeColumns
from autotuner.domain.jobs.job import Job

__all__ = [
    "COMMON",
    "KNOWN",
    "PARTS",
    "RESIDUAL",
    "SEARCHED",
    "Z80",
    "TimeError",
    "fit_probability",
    "interval_error",
    "log_variance",
    "part_shares",
    "relative_error",
    "time_error",
]

Z80 = 1.2816
"""Standard deviations from the median to either end of an 80 % interval of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeError:
    """Standard deviations of log(measured / predicted).

    Attributes:
        parts: Deviation of the efficiency behind each part of ``StepTime``, by field name, for all layouts of a job.
        residual: Deviation of what is left, a layout's own.
        common: Deviation of a factor on all step times of a job: clocks, versions, a cluster that is slower as a whole.
            It does not say which layout is better, so that a search does not blame its first measurement on parts.
    """

    parts: Mapping[str, float]
    residual: float
    common: float = 0.0


PARTS: Mapping[str, float] = {
    "matrix_s": 0.10,
    "attention_s": 0.25,
    "pointwise_s": 0.30,
    "host_s": 0.50,
    "recompute_s": 0.15,
    "offload_s": 0.60,
    "tensor_communication_s": 0.40,
    "context_communication_s": 0.50,
    "expert_communication_s": 0.60,
    "pipeline_communication_s": 0.60,
    "data_communication_s": 0.60,
    "bubble_s": 0.15,
    "optimizer_s": 0.40,
}
"""Standard deviations of the logarithm of each part's factor, for software that nobody fitted.

Products, memory traffic, host, data-parallel communication and optimizer: how far the fitted constants of the stacks in
catalog/stacks.toml lie apart. Attention: kernels' versions. The others are assumptions; experts and context were never
compared with a published run, nor was offloading.
"""

RESIDUAL = 0.08
"""Standard deviation of what no part explains and a layout has for itself; replays choose it (docs/sampler.md)."""

KNOWN = 0.2
"""Factor on ``PARTS`` where the stack's constants were fitted to published runs; the rest is its ``scatter``."""

SEARCHED = 0.4
"""Factor on ``PARTS`` for a search, which must be able to learn that this job differs; of 1, 0.4 and 0.2 it takes the
fewest trials in replays of the published sheets."""

COMMON = 0.15
"""Standard deviation of the common factor: with the stack of unknown software instead of their own, 80 % of the runs of
most published tables lie within the 30 % that it makes of an interval. It saves trials in replays."""

_UNVALIDATED = 2.0
"""Factor on the deviations for a kind of device on which no published run was compared: an assumption."""

MEMORY_DEVIATION = 0.08
"""Standard deviation of log(peak that runs out / predicted peak)."""


def time_error(job: Job) -> TimeError:
    """What a search believes beforehand about the errors of this job's predictions."""
    if not is_validated(job.cluster.accelerator):
        return _widened(_UNVALIDATED, residual=_UNVALIDATED * RESIDUAL, common=_UNVALIDATED * COMMON)
    known = job.stack.scatter is not None
    return _widened(SEARCHED if known else 1.0, residual=RESIDUAL, common=COMMON)


def interval_error(job: Job) -> TimeError:
    """What the intervals are made of: where the stack was fitted, what was seen on sheets that were left out."""
    if job.stack.scatter is None or not is_validated(job.cluster.accelerator):
        return time_error(job)
    return _widened(KNOWN, residual=job.stack.scatter)


def _widened(factor: float, *, residual: float, common: float = 0.0) -> TimeError:
    return TimeError(parts={name: factor * value for name, value in PARTS.items()}, residual=residual, common=common)


def part_shares(step_time: StepTimeColumns, error: TimeError) -> Floats:
    """Share of each part in each step, by the order of ``error.parts``: shape (layouts, parts).

    To first order, log(step time) changes by share times the log of the part's factor.
    """
    total_s = step_time.total_s
    return np.stack([getattr(step_time, name) / total_s for name in error.parts], axis=1)


def relative_error(step_time: StepTimeColumns, job: Job) -> Floats:
    """Half-width e of the 80 % interval of each step time t: measured within t / (1 + e) .. t (1 + e)."""
    half_width: Floats = np.exp(Z80 * np.sqrt(log_variance(step_time, interval_error(job)))) - 1
    return half_width


def log_variance(step_time: StepTimeColumns, error: TimeError) -> Floats:
    """Variance of log(measured / predicted) of each step."""
    squares = (np.square(deviation * getattr(step_time, name)) for name, deviation in error.parts.items())
    variance: Floats = reduce(np.add, squares) / np.square(step_time.total_s) + error.residual**2 + error.common**2
    return variance


def fit_probability(peak_bytes: Floats, limit_bytes: float) -> Floats:
    """How likely each predicted peak is to stay within the limit."""
    deviations = (math.log(limit_bytes) - np.log(peak_bytes)) / MEMORY_DEVIATION
    # the logistic curve nearest to the normal distribution function, which numpy lacks; off by less than 0.01
    probability: Floats = 1 / (1 + np.exp(np.clip(-1.702 * deviations, -50, 50)))
    return probability
