"""Tests of ``autotuner.core.study``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import ShardLevel
from autotuner.core.errors import InvalidInput
from autotuner.core.study import LossCurve, OptimizerSpace, Range, front
from tests.builders import cpu_layout
from tests.studies import candidate, curve, reached_trial, study_request, study_trial


def test_losses_are_averaged_over_as_many_sequences_whatever_the_batch() -> None:
    small, large = curve(6.0, 4.0, 2.0, batch=16), curve(6.0, 4.0, 2.0, batch=32)
    assert small.smoothed(32) == (6.0, 5.0, 3.0)
    assert large.smoothed(32) == (6.0, 4.0, 2.0)


def test_the_target_is_reached_by_a_whole_window_alone() -> None:
    """The first loss lies below the target by luck, and one batch says less than two."""
    lucky = curve(4.9, 6.0, 5.1, 4.7, 4.6, batch=16)
    assert lucky.steps_to(5.0, 32) == 4
    assert lucky.steps_to(4.0, 32) is None


def test_the_first_step_is_no_measure_of_the_others() -> None:
    times = (9.0, 1.0, 1.2, 1.1)
    assert LossCurve(losses=(1.0,) * 4, step_times_s=times, global_batch_size=4).step_time_s == pytest.approx(1.1)
    assert curve().step_time_s == 0.0
    assert curve(5.0, step_time_s=3.0).step_time_s == 3.0  # before there is another


def test_samples_are_counted_in_sequences() -> None:
    assert curve(5.0, 4.0, batch=16).with_step(3.0, 1.0).num_samples == 48


def test_a_candidate_runs_on_as_much_of_the_cluster_as_it_takes() -> None:
    job = study_request().job_of(candidate(batch=64, replicas=1))
    assert (job.cluster.world_size, job.workload.global_batch_size) == (1, 64)


def test_more_data_parallel_ranks_are_shards_where_the_layout_shards() -> None:
    sharded = cpu_layout(data_parallel_shard_degree=2, shard_level=ShardLevel.PARAMETERS)
    assert study_request(layout=sharded).layout_of(4).data_parallel_shard_degree == 4
    assert study_request().layout_of(4).data_parallel_replicate_degree == 4


def test_a_study_is_not_simulated() -> None:
    request = study_request()
    pretending = replace(request.job, cluster=replace(request.job.cluster, engine="simulated"))
    with pytest.raises(InvalidInput, match="the cost model has no losses"):
        replace(request, job=pretending)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizers": ()}, "optimizers"),
        ({"beta2": Range(low=0.9, high=1.0)}, "beta2.high"),
        ({"global_batch_sizes": (0,)}, "global_batch_sizes"),
        ({"learning_rate": Range(low=0.0, high=0.1)}, "low"),
    ],
)
def test_a_space_that_holds_what_nobody_can_train_with_is_refused_by_name(
    change: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        OptimizerSpace(**change)  # type: ignore[arg-type]  # one field of any kind
    assert refused.value.field == named


def test_a_range_that_falls_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no more than high"):
        Range(low=2.0, high=1.0)


def test_the_front_has_what_none_beats_in_time_and_accelerator_hours_the_fastest_first() -> None:
    cheap, fast, beaten = reached_trial(0, 8.0, 1.0), reached_trial(1, 2.0, 3.0), reached_trial(2, 8.0, 3.0)
    missed = study_trial(3, 6.0, 6.0)
    assert [trial.number for trial in front([cheap, fast, beaten, missed])] == [1, 0]


def test_equals_share_the_front() -> None:
    assert [trial.number for trial in front([reached_trial(0, 1.0, 1.0), reached_trial(1, 1.0, 1.0)])] == [0, 1]
