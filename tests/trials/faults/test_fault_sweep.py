"""One job, searched on healthy links and under a fault trace: another layout is first."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.fault_trace import FaultTrace
from autotuner.launch.local import LocalLauncher
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.simulation.scenario import Scenario
from autotuner.launch.zygote import Forks
from bench.fault_sweep import sweep_request, tried
from tests.builders import tiny_model


def test_replicas_are_first_on_healthy_links_and_an_adaptive_pipeline_while_one_is_late() -> None:
    trace = FaultTrace.parse("3;2_3;0.06", num_steps=12)
    exact = Scenario(noise=0.0, run_noise=0.0, step_noise=0.0, memory_noise=0.0)  # what the cost model says, no luck
    with closing(SimulatedLauncher({"exact": exact})) as launcher:
        healthy, _ = tried(sweep_request(None, is_simulated=True), launcher)
        faulty, _ = tried(sweep_request(trace, is_simulated=True), launcher)
    assert healthy[0].layout.pipeline_parallel_degree == 1
    assert faulty[0].layout.pipeline_schedule is PipelineSchedule.ADAPTIVE
    assert faulty[0].layout.p2p_transport is P2PTransport.DELEGATED
    assert {trial.layout for trial in healthy} == {trial.layout for trial in faulty}


@pytest.mark.oracle
def test_real_trials_rank_an_adaptive_pipeline_first_where_a_link_is_very_late(tmp_path: Path, forks: Forks) -> None:
    """So late that nothing else takes as long on whatever machine: a quarter of a second for each message."""
    asked = sweep_request(FaultTrace.parse("2;2_3;0.25", num_steps=10))
    job = replace(asked.job, model=tiny_model(num_layers=8), workload=replace(asked.job.workload, seq_len=64))
    space = asked.space.with_axes(
        pipeline_parallel_degree=(4,),
        pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ADAPTIVE),
        p2p_transport=(P2PTransport.DELEGATED,),
    )
    with closing(LocalLauncher(tmp_path, forks)) as launcher:
        ranked, others = tried(replace(asked, job=job, space=space), launcher)
    assert others == []
    first, second = ranked
    assert first.layout.pipeline_schedule is PipelineSchedule.ADAPTIVE
    assert second.layout.pipeline_schedule is PipelineSchedule.ONE_F_ONE_B
    assert first.measurement is not None
    assert [event.kind.value for event in first.measurement.link_events][:2] == ["link_slow", "replanned"]
