from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.layouts.choice import ShardLevel
from autotuner.core.studies.space import OptimizerSpace, Range
from autotuner.errors import InvalidInput
from tests.builders import cpu_layout
from tests.studies import candidate, study_request


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
