"""The event simulator in columns, against the one that runs a schedule at a time."""

from __future__ import annotations

import numpy as np
import pytest

from autotuner.core.choices import PipelineSchedule
from autotuner.costmodel.links.hops import Hops
from autotuner.costmodel.links.simulated import simulated_numbers, simulated_s
from autotuner.costmodel.links.stage_passes import StagePasses
from autotuner.pipeline_schedules.actions import Schedule
from autotuner.pipeline_schedules.named import named_schedule
from autotuner.pipeline_schedules.simulate import PassTimes, simulate
from autotuner.pipeline_schedules.transport import BESIDE_COMPUTE, BLOCKING, Transport, delegated

NUM_LAYOUTS = 5
COPY = 0.05
TRANSPORTS = {"inline": BLOCKING, "beside": BESIDE_COMPUTE, "delegated": delegated(2, copy_s=COPY)}
FIXED = [
    (PipelineSchedule.GPIPE, 1),
    (PipelineSchedule.ONE_F_ONE_B, 1),
    (PipelineSchedule.INTERLEAVED_1F1B, 2),
    (PipelineSchedule.ZERO_BUBBLE, 1),
    (PipelineSchedule.ZERO_BUBBLE, 2),
    (PipelineSchedule.ZBV, 2),
    (PipelineSchedule.DUALPIPEV, 2),
]


def random_passes(num_stages: int, source: np.random.Generator) -> StagePasses:
    forward_s = source.uniform(0.9, 1.1, (NUM_LAYOUTS, num_stages))
    return StagePasses(forward_s=forward_s, input_s=1.3 * forward_s, weight_s=0.8 * forward_s)


def hops_of(delays_s: np.ndarray, transport: str) -> Hops:
    nothing = np.zeros_like(delays_s)
    copies = nothing + COPY * (transport == "delegated")
    return Hops(
        blocks_s=delays_s if transport == "inline" else copies,
        flies_s=nothing if transport == "inline" else delays_s,
        receives_s=copies,
        num_delegates=np.full(len(delays_s), 2 * (transport == "delegated")),
    )


def one_by_one_s(schedule: Schedule, passes: StagePasses, delays_s: np.ndarray, transport: Transport) -> list[float]:
    """Each layout's step by the simulator itself."""
    rank_of, found = schedule.rank_of, []
    for row, delays in enumerate(delays_s):
        ranks = [(rank_of[stage], rank_of[stage + 1]) for stage in range(schedule.num_stages - 1)]
        hops = [min(pair) if abs(pair[0] - pair[1]) == 1 else len(delays) - 1 for pair in ranks]
        times = PassTimes(
            forward_s=tuple(passes.forward_s[row]),
            input_s=tuple(passes.input_s[row]),
            weight_s=tuple(passes.weight_s[row]),
            send_s=tuple(float(delays[hop]) for hop in hops),
        )
        found.append(simulate(schedule, times, transport).makespan_s)
    return found


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("name", "v"), FIXED)
def test_steps_that_are_simulated_whole_are_those_of_the_simulator(
    name: PipelineSchedule, v: int, transport: str
) -> None:
    source, p, m = np.random.default_rng(0), 4, 12
    passes, delays_s = random_passes(p * v, source), source.choice([0.0, 0.1, 2.0], (NUM_LAYOUTS, p))
    step_s, _ = simulated_s(name, p, v, m, passes, hops_of(delays_s, transport))
    expected_s = one_by_one_s(named_schedule(name, p, v, m), passes, delays_s, TRANSPORTS[transport])
    assert step_s == pytest.approx(expected_s, rel=1e-12)  # sums of floats in another order


@pytest.mark.parametrize("transport", ["inline", "beside"])
@pytest.mark.parametrize(("name", "v"), [(PipelineSchedule.ONE_F_ONE_B, 1), (PipelineSchedule.ZERO_BUBBLE, 1)])
def test_steps_of_many_micro_batches_go_on_as_their_middle_does(name: PipelineSchedule, v: int, transport: str) -> None:
    source, p, m = np.random.default_rng(1), 8, 130
    passes, delays_s = random_passes(p * v, source), np.full((NUM_LAYOUTS, p), 0.02)
    delays_s[:, 5] = [0.5, 1.0, 2.0, 3.0, 5.0]
    simulated = simulated_numbers(p, v, m)
    assert simulated == (18, 34)
    step_s, each_s = simulated_s(name, p, v, m, passes, hops_of(delays_s, transport))
    expected_s = one_by_one_s(named_schedule(name, p, v, m), passes, delays_s, TRANSPORTS[transport])
    # a slow link lets micro-batches pass in bunches, so that two rounds are not a whole number of periods
    assert step_s + (m - simulated[-1]) * each_s == pytest.approx(expected_s, rel=0.04)
