"""Closed forms of bubbles, against the event simulator."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.choices import PipelineSchedule
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.costmodel.layer.work import Passes
from autotuner.costmodel.step.bubble import rank_bubble_s
from autotuner.schedules.simulate import PassTimes
from bench.schedule_gap import Case, draw, predicted_s, simulated_s

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ZBV, DUALPIPEV, ADAPTIVE = PipelineSchedule


SIMULATED = tuple(schedule for schedule in PipelineSchedule if schedule not in (DUALPIPEV, ADAPTIVE))
"""The simulator runs a pair of passes that DualPipe overlaps one after the other: see test_zero_bubble. The adaptive
schedule is planned from the times of its stages."""


@given(
    schedule=st.sampled_from(SIMULATED),
    p=st.integers(2, 6),
    rounds=st.integers(2, 5),
    forward=st.floats(1, 30),
    slower=st.floats(1.0, 2.2),
    weight=st.floats(0.1, 1.0),
    send=st.sampled_from((0.0, 0.01)),
)
def test_equal_ranks_wait_exactly_as_long_as_in_the_simulator(
    schedule: PipelineSchedule, p: int, rounds: int, forward: float, slower: float, weight: float, send: float
) -> None:
    stages = {INTERLEAVED: 3, ZBV: 2}.get(schedule, 1)
    times = PassTimes.equal(p * stages, forward, slower * forward, weight * forward, send_s=send * forward)
    case = Case(
        pipeline_schedule=schedule, num_ranks=p, stages_per_rank=stages, num_micro_batches=rounds * p, times=times
    )
    # sums of floats in another order; nothing else differs
    assert predicted_s(case, blocking_sends=False) == pytest.approx(simulated_s(case, blocking_sends=False), rel=1e-12)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("schedule", SIMULATED)
def test_unequal_ranks_and_slow_links_are_off_by_less_than_a_percent_on_average(
    schedule: PipelineSchedule, blocking: bool
) -> None:
    source = random.Random(0)
    cases = [draw(schedule, source) for _ in range(40)]
    errors = [
        abs(predicted_s(case, blocking_sends=blocking) / simulated_s(case, blocking_sends=blocking) - 1)
        for case in cases
    ]
    # bench/schedule_gap.py prints for 250 cases: means to 0.21 % and single cases to 5.4 %, where layers do not divide;
    # of a V 0.65 % and 10.6 %, where it has no more micro-batches than ranks
    assert np.mean(errors) < (0.008 if schedule == ZBV else 0.003)
    assert max(errors) < (0.11 if schedule == ZBV else 0.055)


STAGES = ((GPIPE, 1), (ONE_F_ONE_B, 1), (INTERLEAVED, 2), (ZERO_BUBBLE, 1), (ZERO_BUBBLE, 2), (ZBV, 2), (DUALPIPEV, 2))
"""Schedules and a number of stages per rank."""


def column(value: float, size: int) -> Passes:
    seconds = np.full(size, value)
    return Passes(forward_s=seconds, input_s=2 * seconds, weight_s=seconds)


def test_one_rank_waits_for_nobody() -> None:
    x = LayoutColumns.from_layouts([Layout()])
    bubble = rank_bubble_s(x, np.array([8]), np.array([0]), column(1.0, 1), column(0.0, 1), np.array([1.0]))
    assert bubble.tolist() == [0.0]


def test_a_column_of_many_schedules_is_its_rows_one_by_one() -> None:
    layouts = [
        Layout(pipeline_parallel_degree=p, pipeline_schedule=schedule, virtual_stages_per_rank=stages)
        for p in (2, 4)
        for schedule, stages in STAGES
    ]

    def bubbles(rows: list[Layout]) -> list[float]:
        x, size = LayoutColumns.from_layouts(rows), len(rows)
        last = x.pipeline_parallel_degree - 1
        others = column(1.0, size) * last.astype(np.float64)
        return list(rank_bubble_s(x, np.full(size, 8), last, column(1.5, size), others, np.full(size, 0.1)))

    assert bubbles(layouts) == [bubbles([layout])[0] for layout in layouts]
