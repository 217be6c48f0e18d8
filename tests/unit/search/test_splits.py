"""How many ways to split a job are looked at, and that none is built beyond."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from autotuner.core.choices import PipelineSchedule
from autotuner.core.space import SearchSpace
from autotuner.core.stages import stage_sizes
from autotuner.search.space.legal import MAX_SPLITS, MAX_VALUES, SpaceTooLarge, splits_of
from tests.builders import big_job, h100_cluster, llama_70b, tiny_job


def test_an_axis_with_more_values_than_are_looked_at_is_refused_with_their_number() -> None:
    with pytest.raises(SpaceTooLarge, match=r"space\.recompute_every = 3000: names more values .* at most 1000"):
        splits_of(tiny_job(1), SearchSpace(recompute_every=tuple(range(1, 3001))))


@pytest.mark.parametrize("divides", [True, False])
def test_more_splits_than_are_looked_at_are_refused_with_the_axes_that_make_them(divides: bool) -> None:
    many = tuple(range(1, MAX_VALUES + 1))
    space = SearchSpace(
        tensor_parallel_degree=(1,) if divides else many[1:],
        expert_parallel_degree=many,
        micro_batch_size=many,
    )
    with pytest.raises(SpaceTooLarge, match=r"1000 of expert_parallel_degree.* in more ways than are looked at"):
        splits_of(tiny_job(1), space)


def test_more_shapes_of_a_pipeline_than_are_looked_at_are_refused_with_the_number() -> None:
    space = SearchSpace(first_stage_less_layers=tuple(range(100)), last_stage_less_layers=tuple(range(100)))
    with pytest.raises(SpaceTooLarge, match=r"space = 20000: pipeline_schedule, .*; name fewer values"):
        splits_of(tiny_job(2), space)


def test_a_million_ranks_are_split_without_listing_the_stages_of_a_million_pipeline_ranks() -> None:
    job = replace(big_job(), cluster=h100_cluster(num_nodes=2**17))
    space = SearchSpace(context_parallel_degree=None, pipeline_schedule=tuple(PipelineSchedule))
    degrees = splits_of(job, space)
    assert 10_000 < len(degrees) < MAX_SPLITS
    assert degrees.pipeline_parallel_degree.max() == 2**20


@pytest.mark.parametrize("num_layers", [1, 2, 7, 12, 61])
@pytest.mark.parametrize("pipeline", [2, 3, 5, 8])
def test_ends_that_deal_the_same_layers_to_every_stage_are_one_split(num_layers: int, pipeline: int) -> None:
    job = replace(big_job(), model=llama_70b(num_layers=num_layers), cluster=h100_cluster(accelerators_per_node=30))
    ends = tuple(range(4))
    space = SearchSpace(
        tensor_parallel_degree=(1,),
        pipeline_parallel_degree=(pipeline,),
        pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,),
        first_stage_less_layers=ends,
        last_stage_less_layers=ends,
    )
    found = splits_of(job, space)
    dealt = {
        (int(first), int(last))
        for first, last in zip(found.first_stage_less_layers, found.last_stage_less_layers, strict=True)
    }
    sizes = {stage_sizes(num_layers, pipeline, first, last) for first, last in product(ends, ends)}
    assert {stage_sizes(num_layers, pipeline, first, last) for first, last in dealt} == sizes
    assert len(dealt) == len(sizes)
