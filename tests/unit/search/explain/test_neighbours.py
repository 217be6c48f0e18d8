from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import (
    AttentionKernel,
    ContextExchange,
    GradientClip,
    GradientSync,
    PipelineSchedule,
    Recompute,
    ShardLevel,
)
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import IDLE_RULES, reasons
from autotuner.search.explain.neighbours import neighbours
from autotuner.search.text.sentences import change_in_words
from tests.builders import big_job, cpu_layout, tiny_job

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


def test_the_ends_of_a_pipeline_give_layers_away_and_take_them_back() -> None:
    assert {"fewer layers on the first stage 0 → 1", "fewer layers on the last stage 0 → 1"} <= changes(PIPED)
    assert "fewer layers on the last stage 2 → 1" in changes(replace(PIPED, last_stage_less_layers=2))
    assert not [change for change in changes(PLAIN) if "fewer layers" in change]


def test_recomputation_goes_to_twice_and_half_as_many_layers_where_there_is_any() -> None:
    again = replace(PLAIN, recompute=Recompute.FULL, recompute_every=2)
    assert {"recompute interval 2 → 1", "recompute interval 2 → 4"} <= changes(again)
    assert "recompute full → none, recompute interval 2 → 1" in changes(again)
    assert not [change for change in changes(PLAIN) if "interval" in change]


def test_ways_to_communicate_are_tried_where_there_is_somebody_to_talk_to() -> None:
    everywhere = replace(PLAIN, context_parallel_degree=2, compiled=True, sequence_parallel=True)
    assert {
        "loss parallel on → off",
        "async tensor parallel off → on",
        "context exchange ring → all gather",
        "context exchange ring → all to all",
        "gradient bucket 26214400 → 52428800",
        "gradient bucket 26214400 → 13107200",
    } <= changes(everywhere)
    assert not [c for c in changes(Layout()) if any(w in c for w in ("loss", "async", "exchange", "bucket"))]


def test_other_kernels_and_other_memory_are_tried() -> None:
    wanted = {"compiled off → on", "optimizer kernel fused → foreach", "activation offload off → on"}
    assert wanted <= changes(Layout())
    on_cores = {change_in_words(cpu_layout(), after) for after in neighbours(cpu_layout(), tiny_job(1))}
    assert "activation offload off → on" not in on_cores


def test_a_step_away_from_every_choice_takes_with_it_what_would_mean_nothing() -> None:
    full = replace(
        PLAIN,
        tensor_parallel_degree=2,
        data_parallel_replicate_degree=2,
        pipeline_parallel_degree=2,
        context_parallel_degree=2,
        loss_parallel=False,
        sequence_parallel=True,
        compiled=True,
        async_tensor_parallel=True,
        context_exchange=ContextExchange.ALL_GATHER,
        gradient_bucket_bytes=2**20,
        first_stage_less_layers=1,
        last_stage_less_layers=1,
        recompute=Recompute.FULL,
        recompute_every=2,
    )
    for after in neighbours(full, big_job(1)):
        broken = {reason.rule for reason in reasons(after, big_job(1), IDLE_RULES)}
        assert not broken
        assert after.pipeline_parallel_degree > 1 or not after.first_stage_less_layers + after.last_stage_less_layers


def test_a_step_may_leave_a_lossy_exchange_or_an_early_clip_and_takes_up_none() -> None:
    """They change the mathematics; so do the details of an exchange."""
    full = Layout(data_parallel_replicate_degree=64)
    demo, pre = replace(full, gradient_sync=GradientSync.DEMO), replace(full, gradient_clip=GradientClip.PRE)
    assert all(step.is_equivalent for step in neighbours(full, big_job()))
    assert full in neighbours(demo, big_job())
    assert full in neighbours(pre, big_job())
    for step in (*neighbours(demo, big_job()), *neighbours(pre, big_job())):
        assert (step.sync_chunk, step.sync_top_k) == (full.sync_chunk, full.sync_top_k)
        assert step.gradient_sync in (GradientSync.FULL, GradientSync.DEMO)
        assert step.gradient_clip in (GradientClip.POST, GradientClip.PRE)
