"""Timelines of a GPU as the profiler records them, made by hand: one step of 1,000 ns."""

from __future__ import annotations

from collections.abc import Sequence

from trials.measurement.device_time import device_time_ns
from trials.measurement.phases import BACKWARD
from trials.measurement.recording import Event
from trials.measurement.stopwatch import MARK

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
