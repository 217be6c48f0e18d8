"""Breakdowns of real steps; what each part measures is in test_host_time and test_device_time."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from autotuner.core.choices import PipelineSchedule, Recompute
from autotuner.core.layout import Layout
from autotuner.core.measurement import Breakdown
from tests.builders import breakdown, cpu_layout
from tests.trials.specs import ONE_STEP, fsdp, trial_spec
from tests.trials.zygote import Zygote
from trials.measurement.breakdown import longest_computing

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
