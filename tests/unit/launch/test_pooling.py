from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.launch.pooling import pooled
from tests.builders import breakdown, measurement


def test_one_run_stays_as_it_is() -> None:
    assert pooled([measurement()]) == measurement()


def test_the_noise_floor_is_the_relative_distance_of_the_medians() -> None:
    runs = [replace(measurement(), step_time_s=time_s) for time_s in (1.0, 1.1)]
    assert pooled(runs).step_time_s == pytest.approx(1.05)
    assert pooled(runs).noise_floor == pytest.approx(0.1 / 1.05)


def test_rates_follow_the_step_time() -> None:
    run = measurement()
    slower = replace(run, step_time_s=3 * run.step_time_s)
    both = pooled([run, slower])
    assert both.mfu == pytest.approx(run.mfu / 2)
    assert both.hfu == pytest.approx(run.hfu / 2)
    assert both.tokens_per_s == pytest.approx(run.tokens_per_s / 2)
    assert both.model_flop_per_s == pytest.approx(run.model_flop_per_s / 2)


@pytest.mark.parametrize(("times_s", "middle"), [((1.2, 1.0, 1.1), 2), ((1.1, 1.0), 1)])
def test_a_step_went_where_it_went_in_the_run_in_the_middle(times_s: tuple[float, ...], middle: int) -> None:
    runs = [measurement(step_time_s=time_s, breakdown=breakdown(forward_s=time_s)) for time_s in times_s]
    assert pooled(runs).breakdown == runs[middle].breakdown


def test_a_rank_needs_the_most_that_it_ever_held_and_the_worst_disturbance_counts() -> None:
    one = replace(measurement(), peak_bytes=(3, 5), foreign_cpu_share=0.02, num_disturbed=1)
    other = replace(measurement(), peak_bytes=(4, 4), foreign_cpu_share=0.07, num_disturbed=2)
    both = pooled([one, other])
    assert (both.peak_bytes, both.foreign_cpu_share, both.num_disturbed) == ((4, 5), 0.07, 3)


def test_the_interval_is_never_below_what_lies_between_the_runs() -> None:
    one = replace(measurement(), step_time_s=1.0, step_time_interval_s=0.003)
    near, far = (replace(one, step_time_s=time_s, step_time_interval_s=0.004) for time_s in (1.0, 1.2))
    assert pooled([one, near]).step_time_interval_s == pytest.approx(0.0025)  # (3² + 4²)½ / 2
    assert pooled([one, far]).step_time_interval_s == pytest.approx(0.1)


def test_without_intervals_there_is_none() -> None:
    run = replace(measurement(), step_time_interval_s=None)
    assert pooled([run, run]).step_time_interval_s is None
