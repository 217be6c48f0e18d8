"""A fault trace in a real trial: two replicas over a link that is late for a while, or dead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import PipelineSchedule
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, Outcome, TrialFailure
from autotuner.launch.local import LocalLauncher
from autotuner.launch.zygote import Forks
from tests.builders import cpu_cluster, cpu_layout
from tests.trials.launching import Watcher, spec

LATE_S = 0.03


def run(trace: str, folder: Path, forks: Forks, watcher: Watcher, **changes: Any) -> Outcome:
    """Two replicas, whose gradients are reduced once a step: two steps of a ring."""
    asked = spec("faults", cluster=cpu_cluster(2), fault_trace=FaultTrace.parse(trace, num_steps=4), **changes)
    return LocalLauncher(folder, forks).run(asked, watcher)


def test_the_trace_is_replayed_behind_the_measured_steps_and_counts_for_robust_figures_alone(
    tmp_path: Path, forks: Forks
) -> None:
    watcher = Watcher()
    outcome = run(f"1;0_1;{LATE_S}\n3;0_1;0", tmp_path, forks, watcher)
    assert isinstance(outcome, Measurement), outcome
    assert [step.is_under_trace for step in watcher.steps] == [False] * 3 + [True] * 4
    assert (outcome.num_steps, outcome.num_warmup_steps) == (2, 1)
    assert outcome.robust is not None
    healthy, late, healed = (stretch.step_times_s for stretch in outcome.robust.stretches)
    assert (len(healthy), len(late), len(healed)) == (1, 2, 1)
    assert min(late) >= 2 * LATE_S  # the ring's two steps, each of them late
    mean_s = sum((*healthy, *late, *healed)) / 4
    assert outcome.robust.step_time_s == pytest.approx(mean_s)  # added in another order


def test_a_layout_that_cannot_do_without_a_dead_link_fails_and_says_which(tmp_path: Path, forks: Forks) -> None:
    outcome = run("1;0_1;dead", tmp_path, forks, Watcher())
    assert isinstance(outcome, TrialFailure), outcome
    assert outcome.kind is FailureKind.COMMUNICATION
    assert "link 0_1 is dead" in outcome.message


@pytest.mark.parametrize("schedule", [PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE])
def test_a_pipeline_meets_the_trace_on_the_link_between_its_stages(
    tmp_path: Path, forks: Forks, schedule: PipelineSchedule
) -> None:
    layout = cpu_layout(pipeline_parallel_degree=2, micro_batch_size=2, pipeline_schedule=schedule)
    outcome = run(f"2;0_1;{LATE_S}", tmp_path, forks, Watcher(), layout=layout)
    assert isinstance(outcome, Measurement), outcome
    assert outcome.robust is not None
    _, late = outcome.robust.stretches
    assert min(late.step_times_s) >= 4 * LATE_S  # a rank's own sends are held back one after the other: 4 micro-batches


def test_an_assumed_delay_of_the_cluster_stands_during_all_steps(tmp_path: Path, forks: Forks) -> None:
    slow = replace(cpu_cluster(2), link_health=(LinkHealth(ends=(0, 1), delay_s=LATE_S),))
    outcome = LocalLauncher(tmp_path, forks).run(spec("assumed", cluster=slow), Watcher())
    assert isinstance(outcome, Measurement), outcome
    assert outcome.step_time_s >= 2 * LATE_S
    assert outcome.robust is None
