from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.jobs.stages import stage_layers, stages_of_rank
from autotuner.core.layouts.choice import PipelineSchedule
from autotuner.core.layouts.layout import Layout


def sizes(layout: Layout, num_layers: int) -> list[int]:
    stages = [stage_layers(layout, num_layers, stage) for stage in range(layout.num_stages)]
    assert [layer for stage in stages for layer in stage] == list(range(num_layers))
    return [len(stage) for stage in stages]


@given(st.integers(1, 16).flatmap(lambda stages: st.tuples(st.just(stages), st.integers(stages, 100))))
def test_stages_share_the_layers_in_order_and_the_earliest_take_the_odd_ones(shape: tuple[int, int]) -> None:
    num_stages, num_layers = shape
    found = sizes(Layout(pipeline_parallel_degree=num_stages), num_layers)
    assert all(0 <= earlier - later <= 1 for earlier, later in pairwise(found))
    assert found[0] - found[-1] <= 1


def test_the_ends_hold_fewer_layers_by_what_they_give_away() -> None:
    layout = Layout(pipeline_parallel_degree=4, first_stage_less_layers=1, last_stage_less_layers=2)
    assert sizes(layout, 13) == [3, 4, 4, 2]


def test_stages_go_round_the_ranks_or_there_and_back_in_a_v() -> None:
    rounds = Layout(
        pipeline_parallel_degree=2,
        virtual_stages_per_rank=3,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    )
    assert [stages_of_rank(rounds, rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]
    for schedule in (PipelineSchedule.ZBV, PipelineSchedule.DUALPIPEV):
        v = Layout(pipeline_parallel_degree=2, virtual_stages_per_rank=2, pipeline_schedule=schedule)
        assert [stages_of_rank(v, rank) for rank in range(2)] == [(0, 3), (1, 2)]
