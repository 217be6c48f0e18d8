from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from tests.builders import breakdown, cpu_layout
from tests.trials.specs import ONE_STEP, fsdp, trial_spec
from tests.trials.zygote import Zygote
from trials.measurement.breakdown import (
    BACKWARD,
    Span,
    communication_part,
    device_time_ns,
    divided,
    joined,
    longest_computing,
)
from trials.measurement.measure import MARK
from trials.measurement.recording import Event

# ---------------------------------------------------------------- breakdown
COMPUTATION = {"forward_s", "backward_s", "optimizer_s", "other_s"}
GPIPE = PipelineSchedule.GPIPE

COMMUNICATION: dict[Layout, set[str]] = {
    cpu_layout(micro_batch_size=8): set(),
    cpu_layout(micro_batch_size=8, recompute=Recompute.FULL): set(),
    cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4): set(),
    cpu_layout(tensor_parallel_degree=2, micro_batch_size=8): set(),
    cpu_layout(tensor_parallel_degree=2, sequence_parallel=True, micro_batch_size=8): {
        "all_gather_s",
        "reduce_scatter_s",
    },
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2): {"pipeline_idle_s", "send_receive_s"},
    cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, pipeline_schedule=GPIPE): {
        "pipeline_idle_s",
        "send_receive_s",
    },
    fsdp(2, micro_batch_size=4): {"all_gather_s", "reduce_scatter_s"},
}
"""What a layout does beside computing; every one of them reduces the loss over all ranks."""


PROFILED = replace(ONE_STEP, measured_steps=2, max_measured_steps=2, profiled_steps=2)
"""DDP broadcasts in the second step how it orders its gradients from then on."""


def profiled(zygote: Zygote, layout: Layout, folder: Path) -> Breakdown:
    measurement = zygote.run(trial_spec(layout, settings=PROFILED), folder).measurement
    assert measurement.breakdown is not None
    return measurement.breakdown


@pytest.mark.parametrize("layout", COMMUNICATION, ids=str)
def test_a_step_divides_into_what_its_layout_does(layout: Layout, zygote: Zygote, tmp_path: Path) -> None:
    step = profiled(zygote, layout, tmp_path)
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


def test_a_trial_without_profiled_steps_has_no_breakdown(zygote: Zygote, tmp_path: Path) -> None:
    assert zygote.run(trial_spec(), tmp_path).measurement.breakdown is None


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


def test_a_kernel_belongs_to_the_phase_that_launched_it() -> None:
    device = (kernel(100, 200), kernel(200, 500, launched_by=BACKWARD_OP), kernel(500, 550, launched_by=OPTIMIZER_OP))
    assert parts(*device) == {"forward_s": 100, "backward_s": 300, "optimizer_s": 50, "other_s": 550}


def test_communication_counts_where_nothing_computes() -> None:
    device = (kernel(100, 400), kernel(300, 600, ALL_REDUCE, BACKWARD_OP), kernel(500, 550, launched_by=BACKWARD_OP))
    assert parts(*device) == {"forward_s": 300, "all_reduce_s": 150, "backward_s": 50, "other_s": 500}


def test_an_all_to_all_is_known_by_its_call_since_nccl_sends_and_receives_for_it() -> None:
    host = (*HOST, Event(12, 18, "c10d::alltoall_base_", MAIN, 0), Event(13, 17, "nccl:all_to_all", MAIN, 105))
    assert parts(kernel(100, 300, SEND_RECEIVE, 105), host=host) == {"all_to_all_s": 200, "other_s": 800}


def test_a_receive_of_a_pipeline_waits_until_it_takes_as_long_as_the_shortest() -> None:
    device = (kernel(100, 120, SEND_RECEIVE), kernel(200, 400, SEND_RECEIVE))
    assert parts(*device, pipelined=True) == {"send_receive_s": 40, "pipeline_idle_s": 180, "other_s": 780}


def test_an_exchange_without_a_pipeline_is_an_exchange() -> None:
    device = (kernel(100, 120, SEND_RECEIVE), kernel(200, 400, SEND_RECEIVE))
    assert parts(*device) == {"send_receive_s": 220, "other_s": 780}


def test_waiting_for_the_last_stage_to_tell_the_loss_is_idle_time_of_a_pipeline() -> None:
    assert parts(kernel(600, 900, ALL_REDUCE, LOSS_OP), pipelined=True) == {"pipeline_idle_s": 300, "other_s": 700}
    assert parts(kernel(600, 900, ALL_REDUCE, LOSS_OP)) == {"all_reduce_s": 300, "other_s": 700}


def test_a_kernel_of_unknown_origin_belongs_to_no_phase() -> None:
    assert parts(kernel(100, 200, launched_by=0)) == {"other_s": 1000}


# ---------------------------------------------------------------- timeline
WINDOW = Span(0, 100, "rest")


def test_a_moment_goes_to_the_first_span_that_covers_it() -> None:
    assert divided(WINDOW, [Span(10, 30, "a"), Span(20, 50, "b")]) == {"a": 20, "b": 20, "rest": 60}


def test_a_span_may_be_cut_in_pieces_and_reach_out_of_the_window() -> None:
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
