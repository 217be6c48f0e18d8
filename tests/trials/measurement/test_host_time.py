"""Timelines of a rank on a CPU as the profiler records them, made by hand: one step of 1,000 ns."""

from __future__ import annotations

from trials.measurement.breakdown import BACKWARD, host_time_ns
from trials.measurement.measure import MARK
from trials.measurement.recording import FORWARD, UNNAMED_WAIT, WAIT, Event

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


def parts(*events: Event, pipelined: bool = False) -> dict[str, int]:
    found = host_time_ns([*MARKS, *events], pipelined=pipelined)
    assert sum(found.values()) == 1000
    return {part: time_ns for part, time_ns in found.items() if time_ns}


PASSES = (on(100, 300, FORWARD), on(320, 340, "aten::nll_loss"), on(400, 500, NODE), on(520, 600, NODE))


def test_forward_backward_and_optimizer_follow_each_other() -> None:
    # the gap between two nodes is the engine's own; what follows the last one prepares the optimizer's step
    assert parts(*PASSES) == {"forward_s": 220, "backward_s": 200, "optimizer_s": 300, "other_s": 280}


def test_recomputation_is_part_of_the_backward_pass() -> None:
    assert parts(*PASSES, on(420, 480, "aten::mm")) == parts(*PASSES)


def test_a_forward_pass_between_two_backward_passes_keeps_its_gaps() -> None:
    passes = (on(0, 100, NODE), on(150, 200, FORWARD), on(250, 700, NODE))
    assert parts(*passes) == {"backward_s": 550, "forward_s": 50, "optimizer_s": 200, "other_s": 200}


def test_a_moment_inside_a_collective_belongs_to_it() -> None:
    events = (on(150, 160, "c10d::_allgather_base_"), on(170, 200, WAIT + "all_gather"))
    assert parts(*PASSES, *events)["all_gather_s"] == 40
    assert parts(*PASSES, *events)["forward_s"] == parts(*PASSES)["forward_s"] - 40


def test_a_wait_without_a_name_is_for_the_collective_called_last() -> None:
    functional = (on(150, 160, "c10d::allreduce_"), on(160, 200, UNNAMED_WAIT))
    unknown = (on(210, 215, "c10d::_reduce_scatter_base_"), on(220, 250, WAIT))
    found = parts(*PASSES, *functional, *unknown)
    assert (found["all_reduce_s"], found["reduce_scatter_s"]) == (50, 35)


def test_what_gloo_carries_out_while_nothing_runs_is_waited_for() -> None:
    """DDP waits for its last bucket in C++, after the last node and before the gradients are complete."""
    found = parts(*PASSES, on(450, 690, "gloo:all_reduce", GLOO))
    assert (found["backward_s"], found["all_reduce_s"], found["optimizer_s"]) == (200, 90, 210)


def test_waiting_for_a_neighbour_is_idle_time_of_a_pipeline_only() -> None:
    waits = (on(150, 160, WAIT + "send"), on(170, 200, WAIT + "recv"), on(920, 960, WAIT + "all_reduce"))
    pipeline, other = parts(*PASSES, *waits, pipelined=True), parts(*PASSES, *waits)
    assert (pipeline["send_receive_s"], pipeline["pipeline_idle_s"]) == (10, 70)
    assert (other["send_receive_s"], other["all_reduce_s"]) == (40, 40)
