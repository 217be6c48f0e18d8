"""Parts and timelines of steps, as the profiler records them and made by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest

from autotuner.core import codec
from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from autotuner.core.timeline import Block, BlockKind
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.communicator import WAIT
from autotuner.trials.measurement.breakdown import (
    BACKWARD,
    Span,
    communication_part,
    device_time_ns,
    divided,
    host_time_ns,
    joined,
    longest_computing,
)
from autotuner.trials.measurement.measure import MARK
from autotuner.trials.measurement.recording import FORWARD, UNNAMED_WAIT, Event
from autotuner.trials.measurement.step_timeline import RankRecording, RecordedStep, is_shown, step_timeline
from tests.builders import breakdown, cpu_layout, present, tiny_model
from tests.trials.fork_server import Once
from tests.trials.specs import ONE_STEP, fsdp, trial_spec

# ---------------------------------------------------------------- breakdown
COMPUTATION = {"forward_s", "backward_s", "optimizer_s", "other_s"}
GPIPE = PipelineSchedule.GPIPE

PP: dict[str, Any] = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}
SINGLE, ONE_F_ONE_B, ALL_FORWARD = (
    cpu_layout(micro_batch_size=4),
    cpu_layout(**PP),
    cpu_layout(**PP, pipeline_schedule=GPIPE),
)
REPLICATED = cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2)

COMMUNICATION: dict[Layout, set[str]] = {
    SINGLE: set(),
    cpu_layout(micro_batch_size=8, recompute=Recompute.FULL): set(),
    REPLICATED: set(),
    cpu_layout(tensor_parallel_degree=2, micro_batch_size=8): set(),
    cpu_layout(tensor_parallel_degree=2, sequence_parallel=True, micro_batch_size=8): {
        "all_gather_s",
        "reduce_scatter_s",
    },
    ONE_F_ONE_B: {"pipeline_idle_s", "send_receive_s"},
    ALL_FORWARD: {"pipeline_idle_s", "send_receive_s"},
    fsdp(2, micro_batch_size=4): {"all_gather_s", "reduce_scatter_s"},
}
"""What a layout does beside computing; every one of them reduces the loss over all ranks."""


PROFILED = replace(ONE_STEP, measured_steps=2, max_measured_steps=2, profiled_steps=2)
"""DDP broadcasts in the second step how it orders its gradients from then on."""


def profiled(layout: Layout) -> TrialSpec:
    """A layer for each stage, and two at least: what is recorded of a layer takes most of the time."""
    num_layers = max(2, layout.pipeline_parallel_degree * layout.virtual_stages_per_rank)
    return trial_spec(layout, model=tiny_model(num_layers=num_layers), settings=PROFILED)


@pytest.mark.parametrize("layout", COMMUNICATION, ids=str)
def test_a_step_divides_into_what_its_layout_does(layout: Layout, once: Once) -> None:
    step = present(once(profiled(layout)).measurement.breakdown)
    parts = {field.name: getattr(step, field.name) for field in fields(Breakdown) if field.name != "rank"}
    assert step.rank in range(layout.world_size)
    assert sum(parts.values()) == pytest.approx(step.step_s)
    assert min(parts.values()) >= 0.0
    expected = COMPUTATION | COMMUNICATION[layout]
    if layout.pipeline_parallel_degree == 1:
        expected |= {"all_reduce_s"}  # in a pipeline the ranks that finish early wait there, which is idle time
    assert {name for name, seconds in parts.items() if seconds > 0.0} == expected


def test_the_breakdown_is_that_of_the_rank_that_computes_longest() -> None:
    waiting = replace(breakdown(forward_s=0.2, pipeline_idle_s=0.2), rank=0)
    working = replace(breakdown(forward_s=0.3), rank=1)
    assert longest_computing([waiting, working]) == working


def test_a_trial_without_profiled_steps_has_no_breakdown(once: Once) -> None:
    assert once(trial_spec(settings=ONE_STEP)).measurement.breakdown is None


# ---------------------------------------------------------------- device time
MAIN, ENGINE, STREAM, NCCL = 1, 2, 7, 20
FORWARD_OP, BACKWARD_OP, OPTIMIZER_OP, LOSS_OP = 101, 102, 103, 104
"""Correlations: the host runs ahead of the device, so operations begin long before their kernels."""

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

HOST = (
    Event(0, 0, MARK + "begin", MAIN, 0),
    Event(10, 20, "aten::mm", MAIN, FORWARD_OP),
    Event(30, 60, BACKWARD + "MmBackward0", ENGINE, 0),
    Event(40, 50, "aten::mm", ENGINE, BACKWARD_OP),
    Event(70, 70, MARK + "gradients complete", MAIN, 0),
    Event(75, 80, "aten::_fused_adamw_", MAIN, OPTIMIZER_OP),
    Event(90, 90, MARK + "end", MAIN, 0),
    Event(92, 98, "c10d::allreduce_", MAIN, LOSS_OP),
    Event(1000, 1000, MARK + "done", MAIN, 0),
)


def kernel(start: int, end: int, name: str = "gemm", launched_by: int = FORWARD_OP) -> Event:
    return Event(start, end, name, NCCL if name.startswith("nccl") else STREAM, launched_by)


def parts(*device: Event, host: Sequence[Event] = HOST, pipelined: bool = False) -> dict[str, int]:
    found = device_time_ns(host, device, pipelined=pipelined)
    assert sum(found.values()) == 1000
    return {part: time_ns for part, time_ns in found.items() if time_ns}


def test_a_kernel_belongs_to_the_phase_that_launched_it_and_one_of_unknown_origin_to_none() -> None:
    device = (kernel(100, 200), kernel(200, 500, launched_by=BACKWARD_OP), kernel(500, 550, launched_by=OPTIMIZER_OP))
    assert parts(*device) == {"forward_s": 100, "backward_s": 300, "optimizer_s": 50, "other_s": 550}
    assert parts(kernel(100, 200, launched_by=0)) == {"other_s": 1000}


def test_communication_counts_where_nothing_computes() -> None:
    device = (kernel(100, 400), kernel(300, 600, ALL_REDUCE, BACKWARD_OP), kernel(500, 550, launched_by=BACKWARD_OP))
    assert parts(*device) == {"forward_s": 300, "all_reduce_s": 150, "backward_s": 50, "other_s": 500}


def test_an_all_to_all_is_known_by_its_call_since_nccl_sends_and_receives_for_it() -> None:
    host = (*HOST, Event(12, 18, "c10d::alltoall_base_", MAIN, 0), Event(13, 17, "nccl:all_to_all", MAIN, 105))
    assert parts(kernel(100, 300, SEND_RECEIVE, 105), host=host) == {"all_to_all_s": 200, "other_s": 800}


def test_waiting_for_another_stage_is_idle_time_of_a_pipeline_only() -> None:
    receives = (kernel(100, 120, SEND_RECEIVE), kernel(200, 400, SEND_RECEIVE))
    # each waits until it takes as long as the shortest
    assert parts(*receives, pipelined=True) == {"send_receive_s": 40, "pipeline_idle_s": 180, "other_s": 780}
    assert parts(*receives) == {"send_receive_s": 220, "other_s": 780}
    of_the_loss = kernel(600, 900, ALL_REDUCE, LOSS_OP)  # which the last stage tells
    assert parts(of_the_loss, pipelined=True) == {"pipeline_idle_s": 300, "other_s": 700}
    assert parts(of_the_loss) == {"all_reduce_s": 300, "other_s": 700}


# ---------------------------------------------------------------- timeline
WINDOW = Span(0, 100, "rest")


def test_a_moment_goes_to_the_first_span_that_covers_it_in_pieces_too_and_at_the_ends_of_the_window() -> None:
    assert divided(WINDOW, [Span(10, 30, "a"), Span(20, 50, "b")]) == {"a": 20, "b": 20, "rest": 60}
    spans = [Span(40, 50, "a"), Span(-20, 60, "b"), Span(90, 200, "b"), Span(300, 400, "a")]
    assert divided(WINDOW, spans) == {"a": 10, "b": 60, "rest": 30}


def test_the_parts_sum_to_the_window_whatever_overlaps() -> None:
    draw = random.Random(0)
    for _ in range(50):
        starts = [draw.randrange(-50, 150) for _ in range(30)]
        spans = [Span(start, start + draw.randrange(60), draw.choice("abc")) for start in starts]
        assert divided(WINDOW, spans) == slowly_divided(spans)


def slowly_divided(spans: list[Span]) -> dict[str, int]:
    """Nanosecond by nanosecond."""
    parts: dict[str, int] = {span.part: 0 for span in spans} | {"rest": 0}
    for moment in range(WINDOW.start_ns, WINDOW.end_ns):
        owner = next((span.part for span in spans if span.start_ns <= moment < span.end_ns), "rest")
        parts[owner] += 1
    return parts


def test_gaps_close_unless_a_break_falls_into_them() -> None:
    spans = [Span(30, 40, "a"), Span(0, 10, "a"), Span(15, 20, "a"), Span(16, 18, "a")]
    assert joined(spans, [25]) == [Span(0, 20, "a"), Span(30, 40, "a")]
    assert joined([], [25]) == []


# ---------------------------------------------------------------- collectives
NAMES = {
    "c10d::allreduce_": "all_reduce_s",
    "gloo:all_reduce": "all_reduce_s",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce_s",
    "c10d::barrier": "all_reduce_s",
    "c10d::_allgather_base_": "all_gather_s",
    "c10d::allgather_into_tensor_coalesced_": "all_gather_s",
    "_c10d_functional::all_gather_into_tensor": "all_gather_s",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather_s",
    "c10d::broadcast_": "all_gather_s",
    "c10d::_reduce_scatter_base_": "reduce_scatter_s",
    "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter_s",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter_s",
    "c10d::alltoall_base_": "all_to_all_s",
    "nccl:all_to_all": "all_to_all_s",
    "c10d::send": "send_receive_s",
    "c10d::recv_": "send_receive_s",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_receive_s",
    "aten::mm": None,
    "": None,
}


@pytest.mark.parametrize(("name", "part"), NAMES.items())
def test_a_collective_is_known_by_each_of_its_names(name: str, part: str | None) -> None:
    assert communication_part(name) == part


# ---------------------------------------------------------------- step timeline

FB, FIW = ("F", "B"), ("F", "I", "W")
LAYOUTS: dict[Layout, Mapping[int, tuple[str, ...]]] = {
    SINGLE: {0: FB},
    REPLICATED: {0: FB},
    ONE_F_ONE_B: {0: FB, 1: FB},
    ALL_FORWARD: {0: FB, 1: FB},
    cpu_layout(**PP, virtual_stages_per_rank=2, pipeline_schedule=PipelineSchedule.INTERLEAVED_1F1B): dict.fromkeys(
        range(4), FB
    ),
    cpu_layout(**PP, pipeline_schedule=PipelineSchedule.ZERO_BUBBLE): dict.fromkeys(range(2), FIW),
    cpu_layout(**PP, virtual_stages_per_rank=2, pipeline_schedule=PipelineSchedule.ZBV): dict.fromkeys(range(4), FIW),
}
"""Passes that every micro-batch makes, by stage."""


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_rank_says_when_each_pass_of_each_micro_batch_began_and_ended(layout: Layout, once: Once) -> None:
    step = present(once(profiled(layout)).measurement.timeline)
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
    once: Once,
) -> None:
    step = present(once(profiled(ONE_F_ONE_B)).measurement.timeline)
    blocks = {block.word: block for rank in step.ranks for block in rank.blocks if block.kind.is_pass}
    for number in range(step.num_micro_batches):
        assert blocks[f"0F{number}"].end_s <= blocks[f"1F{number}"].start_s
        assert blocks[f"1B{number}"].end_s <= blocks[f"0B{number}"].start_s


def passes_of(num_micro_batches: int) -> tuple[Block, ...]:
    """A second each way for each."""
    kinds = (BlockKind.FORWARD, BlockKind.BACKWARD)
    pairs = [(i, k, kind) for i in range(num_micro_batches) for k, kind in enumerate(kinds)]
    return tuple(Block(2.0 * i + k, 2.0 * i + k + 1, kind, 0, i) for i, k, kind in pairs)


def recording(rank: int, *, began_ns: int = 0, done_s: tuple[float, ...] = (6.0,), host: str = "a") -> RankRecording:
    """Two micro-batches of one second each way, the step over so much later."""
    passes = passes_of(2)
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


def test_the_shortest_of_several_steps_is_shown() -> None:
    ranks = [recording(0, done_s=(9.0, 6.0, 8.0)), recording(1, done_s=(6.0, 7.0, 6.0))]
    assert step_timeline(ranks, REPLICAS, num_micro_batches=2).step_s == 7.0


def test_many_micro_batches_are_folded_and_counted() -> None:
    step = RecordedStep(began_ns=0, passes=passes_of(100), complete_s=200.0, updated_s=201.0, done_s=201.0)
    found = step_timeline([RankRecording(rank=0, host="a", steps=(step,))], Layout(), num_micro_batches=100)
    assert found.folds[0].num_micro_batches == 96
    assert len(found.ranks[0].actions) < 12
    assert found.ranks[0].seconds.forward_s == 100.0


def test_a_picture_of_many_ranks_shows_one_of_each_pipeline_rank_or_the_first_and_last() -> None:
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


# ---------------------------------------------------------------- host time

MAIN, GLOO = 1, 2
NODE = BACKWARD + "MmBackward0"

MARKS = (
    Event(0, 0, MARK + "begin", MAIN, 0),
    Event(700, 700, MARK + "gradients complete", MAIN, 0),
    Event(900, 900, MARK + "end", MAIN, 0),
    Event(1000, 1000, MARK + "done", MAIN, 0),
)


def on(start: int, end: int, name: str, thread: int = MAIN) -> Event:
    return Event(start, end, name, thread, 0)


def host_parts(*events: Event, pipelined: bool = False) -> dict[str, int]:
    found = host_time_ns([*MARKS, *events], pipelined=pipelined)
    assert sum(found.values()) == 1000
    return {part: time_ns for part, time_ns in found.items() if time_ns}


PASSES = (on(100, 300, FORWARD), on(320, 340, "aten::nll_loss"), on(400, 500, NODE), on(520, 600, NODE))


def test_forward_backward_and_optimizer_follow_each_other() -> None:
    # the gap between two nodes is the engine's own; what follows the last one prepares the optimizer's step
    assert host_parts(*PASSES) == {"forward_s": 220, "backward_s": 200, "optimizer_s": 300, "other_s": 280}


def test_recomputation_is_part_of_the_backward_pass() -> None:
    assert host_parts(*PASSES, on(420, 480, "aten::mm")) == host_parts(*PASSES)


def test_a_forward_pass_between_two_backward_passes_keeps_its_gaps() -> None:
    passes = (on(0, 100, NODE), on(150, 200, FORWARD), on(250, 700, NODE))
    assert host_parts(*passes) == {"backward_s": 550, "forward_s": 50, "optimizer_s": 200, "other_s": 200}


def test_a_moment_inside_a_collective_belongs_to_it() -> None:
    events = (on(150, 160, "c10d::_allgather_base_"), on(170, 200, WAIT + "all_gather"))
    assert host_parts(*PASSES, *events)["all_gather_s"] == 40
    assert host_parts(*PASSES, *events)["forward_s"] == host_parts(*PASSES)["forward_s"] - 40


def test_a_wait_without_a_name_is_for_the_collective_called_last() -> None:
    functional = (on(150, 160, "c10d::allreduce_"), on(160, 200, UNNAMED_WAIT))
    unknown = (on(210, 215, "c10d::_reduce_scatter_base_"), on(220, 250, WAIT))
    found = host_parts(*PASSES, *functional, *unknown)
    assert (found["all_reduce_s"], found["reduce_scatter_s"]) == (50, 35)


def test_the_step_waits_for_collectives_that_gloo_runs_in_the_background() -> None:
    """DDP waits for its last bucket in C++, after the last node and before the gradients are complete."""
    found = host_parts(*PASSES, on(450, 690, "gloo:all_reduce", GLOO))
    assert (found["backward_s"], found["all_reduce_s"], found["optimizer_s"]) == (200, 90, 210)


def test_waiting_for_a_neighbour_is_idle_time_of_a_pipeline_only() -> None:
    waits = (on(150, 160, WAIT + "send"), on(170, 200, WAIT + "recv"), on(920, 960, WAIT + "all_reduce"))
    pipeline, other = host_parts(*PASSES, *waits, pipelined=True), host_parts(*PASSES, *waits)
    assert (pipeline["send_receive_s"], pipeline["pipeline_idle_s"]) == (10, 70)
    assert (other["send_receive_s"], other["all_reduce_s"]) == (40, 40)
