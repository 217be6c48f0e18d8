from __future__ import annotations

import pytest

from autotuner.core.choices import PipelineSchedule
from autotuner.core.dry_run import DryRun, HeldBytes, OperationCounts, RankDryRun, telling_ranks
from autotuner.core.layout import Layout


def rank(number: int, activations_bytes: float) -> RankDryRun:
    held = HeldBytes(
        parameters_bytes=1.0,
        gathered_bytes=2.0,
        gradients_bytes=3.0,
        optimizer_bytes=4.0,
        activations_bytes=activations_bytes,
    )
    counts = OperationCounts(flop=1.0, moved_bytes=1.0, num_operations=1.0, collectives=())
    return RankDryRun(rank=number, held=held, counts=counts)


def test_the_parts_sum_to_the_peak() -> None:
    assert rank(0, 5.0).held.peak_bytes == 15.0


def test_the_fullest_rank_has_the_highest_peak() -> None:
    assert DryRun(ranks=(rank(0, 5.0), rank(8, 7.0), rank(24, 6.0))).fullest.rank == 8


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(tensor_parallel_degree=8), (0,)),
        (Layout(tensor_parallel_degree=8, pipeline_parallel_degree=4), (0, 24)),
        (Layout(pipeline_parallel_degree=4, first_stage_less_layers=1), (0, 1, 3)),
        (Layout(pipeline_parallel_degree=4, last_stage_less_layers=1), (0, 3)),
        (
            Layout(
                pipeline_parallel_degree=4,
                virtual_stages_per_rank=2,
                last_stage_less_layers=1,
                pipeline_schedule=PipelineSchedule.ZBV,
            ),
            (0, 1, 3),
        ),
    ],
    ids=str,
)
def test_the_telling_ranks_are_one_of_each_pipeline_rank_that_may_be_fullest(
    layout: Layout, expected: tuple[int, ...]
) -> None:
    assert telling_ranks(layout) == expected
