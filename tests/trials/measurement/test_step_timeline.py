"""Timelines of real steps, and of steps made by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from autotuner.core import codec
from autotuner.core.choices import PipelineSchedule
from autotuner.core.layout import Layout
from autotuner.core.timeline import Block, BlockKind, StepTimeline
from tests.builders import cpu_layout
from tests.trials.specs import ONE_STEP, trial_spec
from tests.trials.zygote import Zygote
from trials.measurement.step_timeline import RankRecording, RecordedStep, is_shown, step_timeline

PROFILED = replace(ONE_STEP, measured_steps=1, max_measured_steps=1, profiled_steps=1)

FB = ("F", "B")
LAYOUTS: dict[Layout, dict[int, tuple[str, ...]]] = {
    cpu_layout(micro_batch_size=4): {0: FB},
    cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2): {0: FB},
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2): {0: FB, 1: FB},
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, pipeline_schedule=PipelineSchedule.GPIPE): {
        0: FB,
        1: FB,
    },
    cpu_layout(
        pipeline_parallel_degree=2,
        micro_batch_size=2,
        virtual_stages_per_rank=2,
        pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B,
    ): {0: FB, 1: FB, 2: FB, 3: FB},
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE): {
        0: ("F", "I", "W"),
        1: ("F", "I", "W"),
    },
    cpu_layout(
        pipeline_parallel_degree=2,
        micro_batch_size=2,
        virtual_stages_per_rank=2,
        pipeline_schedule=PipelineSchedule.ZBV,
    ): dict.fromkeys(range(4), ("F", "I", "W")),
}
"""Passes that every micro-batch makes, by stage."""


def timeline(zygote: Zygote, layout: Layout, folder: Path) -> StepTimeline:
    found = zygote.run(trial_spec(layout, settings=PROFILED), folder).measurement.timeline
    assert found is not None
    return found


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_rank_says_when_each_pass_of_each_micro_batch_began_and_ended(
    layout: Layout, zygote: Zygote, tmp_path: Path
) -> None:
    step = timeline(zygote, layout, tmp_path)
    assert [rank.rank for rank in step.ranks] == list(range(layout.world_size))
    assert step.folds == ()
    for rank in step.ranks:
        blocks = list(rank.blocks)
        assert all(before.end_s <= after.start_s + 2e-6 for before, after in pairwise(blocks))  # rounded microseconds
        assert blocks[-1].end_s <= step.step_s
        assert rank.seconds.total_s == pytest.approx(step.step_s, abs=1e-4)  # parts are rounded one by one
        assert rank.seconds.forward_s > 0
    passes = Counter(block.word for rank in step.ranks for block in rank.blocks if block.kind.is_pass)
    replicas = layout.world_size // layout.pipeline_parallel_degree
    expected = {
        f"{stage}{kind}{number}": replicas
        for stage, kinds in LAYOUTS[layout].items()
        for kind in kinds
        for number in range(step.num_micro_batches)
    }
    assert passes == expected


def test_a_micro_batch_goes_forward_on_a_stage_before_the_next_and_back_the_other_way(
    zygote: Zygote, tmp_path: Path
) -> None:
    step = timeline(zygote, cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2), tmp_path)
    blocks = {block.word: block for rank in step.ranks for block in rank.blocks if block.kind.is_pass}
    for number in range(step.num_micro_batches):
        assert blocks[f"0F{number}"].end_s <= blocks[f"1F{number}"].start_s
        assert blocks[f"1B{number}"].end_s <= blocks[f"0B{number}"].start_s


def recording(rank: int, *, began_ns: int = 0, done_s: tuple[float, ...] = (6.0,), host: str = "a") -> RankRecording:
    """Two micro-batches of one second each way, the step over so much later."""
    passes = tuple(
        Block(2.0 * i + k, 2.0 * i + k + 1, (BlockKind.FORWARD, BlockKind.BACKWARD)[k], 0, i)
        for i in range(2)
        for k in range(2)
    )
    steps = tuple(
        RecordedStep(began_ns=began_ns, passes=passes, complete_s=4.5, updated_s=5.0, done_s=one) for one in done_s
    )
    return RankRecording(rank=rank, host=host, steps=steps)


REPLICAS = Layout(data_parallel_replicate_degree=2)


def test_ranks_of_one_host_lie_on_its_clock_and_those_of_another_begin_with_it() -> None:
    found = step_timeline(
        [recording(0, began_ns=7_000_000_000), recording(1, began_ns=7_500_000_000)], REPLICAS, num_micro_batches=2
    )
    assert [rank.start_s[0] for rank in found.ranks] == [0.0, 0.5]
    assert found.step_s == 6.5
    elsewhere = step_timeline([recording(0), recording(1, began_ns=99, host="b")], REPLICAS, num_micro_batches=2)
    assert [rank.start_s[0] for rank in elsewhere.ranks] == [0.0, 0.0]


def test_behind_the_last_pass_lie_gradients_and_update_and_the_rest_is_idle() -> None:
    found = step_timeline([recording(0)], Layout(), num_micro_batches=2).ranks[0]
    assert found.actions == ("0F0", "0B0", "0F1", "0B1", "sync", "optimizer")
    seconds = found.seconds
    assert (seconds.forward_s, seconds.backward_s, seconds.sync_s, seconds.optimizer_s) == (2.0, 2.0, 0.5, 0.5)
    assert seconds.idle_s == 1.0


def test_parameters_that_replicas_average_are_exchanged_within_the_update() -> None:
    (step,) = recording(0).steps
    averaging = RankRecording(rank=0, host="a", steps=(replace(step, averaging_s=(4.7, 4.9)),))
    found = step_timeline([averaging], REPLICAS, num_micro_batches=2).ranks[0]
    assert found.actions[-4:] == ("sync", "optimizer", "sync", "optimizer")
    assert (found.seconds.sync_s, found.seconds.optimizer_s) == (0.7, 0.3)


def test_of_several_steps_the_shortest_is_shown() -> None:
    ranks = [recording(0, done_s=(9.0, 6.0, 8.0)), recording(1, done_s=(6.0, 7.0, 6.0))]
    assert step_timeline(ranks, REPLICAS, num_micro_batches=2).step_s == 7.0


def test_many_micro_batches_are_folded_and_counted() -> None:
    passes = tuple(
        Block(2.0 * i + k, 2.0 * i + k + 1, (BlockKind.FORWARD, BlockKind.BACKWARD)[k], 0, i)
        for i in range(100)
        for k in range(2)
    )
    step = RecordedStep(began_ns=0, passes=passes, complete_s=200.0, updated_s=201.0, done_s=201.0)
    found = step_timeline([RankRecording(rank=0, host="a", steps=(step,))], Layout(), num_micro_batches=100)
    assert found.folds[0].num_micro_batches == 96
    assert len(found.ranks[0].actions) < 12
    assert found.ranks[0].seconds.forward_s == 100.0


def test_of_many_ranks_one_of_each_pipeline_rank_is_shown_and_of_many_of_these_the_ends() -> None:
    small = Layout(pipeline_parallel_degree=2, tensor_parallel_degree=4)
    assert [rank for rank in range(8) if is_shown(rank, small)] == list(range(8))
    large = Layout(pipeline_parallel_degree=4, tensor_parallel_degree=8)
    assert [rank for rank in range(32) if is_shown(rank, large)] == [0, 8, 16, 24]
    deep = Layout(pipeline_parallel_degree=64)
    assert [rank for rank in range(64) if is_shown(rank, deep)] == [*range(8), *range(56, 64)]


def test_a_recorded_step_takes_a_few_kilobytes() -> None:
    ranks = [recording(rank) for rank in range(8)]
    layout = Layout(data_parallel_replicate_degree=8)
    assert len(codec.dumps(step_timeline(ranks, layout, num_micro_batches=2))) < 4000
