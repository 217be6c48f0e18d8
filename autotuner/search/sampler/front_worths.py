"""FrontWorths: what the rows of a table are worth by each metric of a front, as far as step times are believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, cast

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers
from autotuner.core.job import Job
from autotuner.core.measurement import Footprint
from autotuner.core.objective import Metric, Objective
from autotuner.costmodel.resource_cost import FootprintColumns, worth_per_step
from autotuner.search.pareto import LEAST_MARGIN, Frontier, Outcomes, reference_below, steps_to_enter
from autotuner.search.sampler.acquisition import log_expected_gain
from autotuner.search.sampler.posterior import Estimate


@dataclass(frozen=True, eq=False, kw_only=True)
class FrontWorths:
    """Rows by each metric of a front.

    Attributes:
        log_worth: Shape (rows, metrics): of a rate, log of its worth per step; of any other metric, of its value.
        is_rate: Which metrics fall as the step time rises.
    """

    log_worth: Floats
    is_rate: Booleans

    @classmethod
    def of(cls, metrics: Sequence[Metric], job: Job, footprints: FootprintColumns | None, num_rows: int) -> Self:
        """Of every row, by what it is modelled to take beside time; ``footprints`` may be None where none is read."""
        worths = [_worth(metric, job, footprints, num_rows) for metric in metrics]
        return cls(log_worth=np.log(np.stack(worths, axis=1)), is_rate=np.array([one.is_rate for one in metrics]))

    def outcomes(self, rows: Integers | slice, times: Estimate, inflation: float) -> Outcomes:
        """What some rows may turn out to be, by what is believed of their step times.

        Args:
            rows: Of the table; ``times`` are theirs.
            times: Log step times in seconds.
            inflation: Factor on their standard deviations.
        """
        deviation = inflation * np.sqrt(times.variance)
        return Outcomes(log_worth=self.log_worth[rows], is_rate=self.is_rate, mean=times.mean, deviation=deviation)

    def frontier(self, log_step_s: Mapping[int, float], others: Integers, expected_log_s: Floats) -> Frontier:
        """The front of the rows whose step time is known, above the worst of the one that is expected of all.

        In what is no rate it is above the worst of all rows: any of them may turn out to be fast.

        Args:
            log_step_s: By row.
            others: Rows that may be on the front.
            expected_log_s: Of every row of the table.
        """
        known = self.values(np.array([*log_step_s], dtype=np.int64), np.array([*log_step_s.values()]))
        expected = self.values(others, expected_log_s[others])
        below_front = reference_below(np.concatenate([known, expected]))
        below_all = self.log_worth.min(axis=0) - LEAST_MARGIN
        return Frontier.of(known, np.where(self.is_rate, below_front, below_all))

    def values(self, rows: Integers, log_step_s: Floats) -> Floats:
        """Log values of rows at these step times."""
        values: Floats = self.log_worth[rows] - np.where(self.is_rate, log_step_s[:, None], 0.0)
        return values


def log_expected_entry(outcomes: Outcomes, frontier: Frontier) -> Floats:
    """Log of how far the step time of each row is expected to lie below the one at which it adds to the front.

    It takes one pass per point of the front, and orders rows much as the expected rise of the hypervolume does.
    """
    below = steps_to_enter(outcomes, frontier) - outcomes.mean
    possible = np.isfinite(below)
    gain: Floats = np.where(possible, log_expected_gain(np.where(possible, below, 0.0), outcomes.deviation), -np.inf)
    return gain


def _worth(metric: Metric, job: Job, footprints: FootprintColumns | None, num_rows: int) -> Floats:
    if metric.is_rate:
        return worth_per_step(Objective(metric=metric), job, footprints, num_rows)
    return np.array(metric.share(cast("Footprint", footprints)))  # its formulas hold for columns
