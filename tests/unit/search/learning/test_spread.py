"""Whether intervals hold as many of a team's own trials as they claim."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.columns import Floats, Integers
from autotuner.search.learning.spread import interval_scale

NUM_JOBS, PER_JOB = 400, 5


def drawn(times_wider: float, num_jobs: int = NUM_JOBS) -> tuple[Floats, Floats, Integers]:
    """Errors that scatter so many times as widely as was claimed."""
    errors = times_wider * 0.1 * np.random.default_rng(0).normal(size=num_jobs * PER_JOB)
    return errors, np.full(errors.shape, 0.1), np.repeat(np.arange(num_jobs), PER_JOB)


@pytest.mark.parametrize("times_wider", [1.0, 2.0, 4.0])
def test_intervals_become_as_wide_as_the_errors_of_many_jobs(times_wider: float) -> None:
    assert interval_scale(*drawn(times_wider)) == pytest.approx(times_wider, rel=0.06)  # 2000 draws, and the claim


def test_one_job_says_little_of_how_wide_intervals_must_be() -> None:
    assert 1.0 < interval_scale(*drawn(4.0, 1)) < interval_scale(*drawn(4.0, 4)) < 4.0


def test_predictions_that_proved_right_narrow_intervals_a_little() -> None:
    assert 0.69 < interval_scale(*drawn(0.1)) < 0.72
