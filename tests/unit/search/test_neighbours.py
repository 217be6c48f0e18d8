from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.domain.choice import AttentionKernel, PipelineSchedule, Recompute, ShardLevel
from autotuner.domain.layout import Layout
from autotuner.search.neighbours import neighbours
from autotuner.search.wording import change_in_words
from tests.builders import big_job

PLAIN = Layout(tensor_parallel_degree=4, data_parallel_replicate_degree=16)
PIPED = Layout(
    tensor_parallel_degree=2,
    pipeline_parallel_degree=4,
    data_parallel_shard_degree=8,
    shard_level=ShardLevel.PARAMETERS,
    reshard_after_forward=True,
    sequence_parallel=True,
    pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    virtual_stages_per_rank=4,
    micro_batch_size=2,
)


def changes(layout: Layout) -> set[str]:
    return {change_in_words(layout, after) for after in neighbours(layout, big_job())}


@pytest.mark.parametrize("layout", [PLAIN, PIPED, Layout()])
def test_each_neighbour_comes_once_and_differs(layout: Layout) -> None:
    found = neighbours(layout, big_job())
    assert len(set(found)) == len(found)
    assert layout not in found


@pytest.mark.parametrize("layout", [PLAIN, PIPED, Layout()])
def test_no_step_changes_the_number_of_ranks_or_the_number_format(layout: Layout) -> None:
    for after in neighbours(layout, big_job()):
        assert after.world_size == layout.world_size
        assert after.precision == layout.precision


def test_a_factor_moves_between_any_two_degrees() -> None:
    assert {
        "tensor 4 → 2, replicate 16 → 32",
        "tensor 4 → 8, replicate 16 → 8",
        "tensor 4 → 2, pipeline 1 → 2",
        "pipeline 1 → 2, replicate 16 → 8",
    } <= changes(PLAIN)
    assert "tensor 2 → 4, shard 8 → 4" in changes(PIPED)


def test_replicas_that_are_not_sharded_stay_so_when_ranks_move() -> None:
    moved = [after for after in neighbours(PLAIN, big_job()) if after.tensor_parallel_degree != 4]
    assert {after.shard_level for after in moved} == {ShardLevel.NONE}


def test_what_one_rank_of_a_kind_cannot_have_goes_with_it() -> None:
    alone = replace(PIPED, pipeline_parallel_degree=2, data_parallel_shard_degree=2)
    for after in neighbours(alone, big_job()):
        assert after.tensor_parallel_degree > 1 or not after.sequence_parallel
        assert after.pipeline_parallel_degree > 1 or after.pipeline_schedule == PipelineSchedule.ONE_F_ONE_B
        assert (after.data_parallel_shard_degree > 1) == (after.shard_level != ShardLevel.NONE)


def test_the_micro_batch_doubles_and_halves() -> None:
    assert {"micro-batch 2 → 1", "micro-batch 2 → 4"} <= changes(PIPED)


def test_every_schedule_comes_with_the_stages_it_needs_and_stages_go_to_the_next_divisor() -> None:
    assert {"stages per rank 4 → 2", "stages per rank 4 → 5"} <= changes(PIPED)  # of 20 layers per rank
    assert "stages per rank 4 → 2, schedule interleaved 1f1b → zbv" in changes(PIPED)
    assert "stages per rank 4 → 1, schedule interleaved 1f1b → 1f1b" in changes(PIPED)


def test_one_pipeline_rank_has_no_schedule_to_change_and_one_tensor_rank_no_sequence_parallelism() -> None:
    assert not [change for change in changes(PLAIN) if "schedule" in change]
    assert not [change for change in changes(Layout()) if "sequence" in change]


def test_the_same_replicas_are_sharded_at_every_level() -> None:
    assert {f"sharding none → {level}" for level in ("optimizer", "gradients", "parameters")} <= changes(PLAIN)
    assert {"sharding parameters → none, reshard after forward on → off", "reshard after forward on → off"} <= changes(
        PIPED
    )


def test_every_recomputation_every_kernel_of_the_accelerator_and_the_norm_are_tried() -> None:
    found = neighbours(PLAIN, big_job())
    assert {after.recompute for after in found} == set(Recompute)
    assert {after.attention_kernel for after in found} == {
        AttentionKernel.MATH,
        AttentionKernel.EFFICIENT,
        AttentionKernel.FLASH,
    }
    assert "fused norm on → off" in changes(PLAIN)
