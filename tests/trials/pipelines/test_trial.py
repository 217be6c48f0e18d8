"""Trials whose pipelines are planned, from the first collective to the measurement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import P2PTransport, PipelineSchedule
from tests.builders import cpu_layout
from tests.trials.pipelines.left import delegates_left
from tests.trials.specs import FIVE_STEPS, trial_spec
from tests.trials.zygote import Zygote

PLANNED: dict[str, Any] = {
    "pipeline_parallel_degree": 2,
    "pipeline_schedule": PipelineSchedule.ADAPTIVE,
    "p2p_transport": P2PTransport.DELEGATED,
    "micro_batch_size": 1,
}


def test_a_trial_plans_its_pipeline_from_the_passes_that_it_measured(zygote: Zygote, tmp_path: Path) -> None:
    settings = replace(FIVE_STEPS, profiled_steps=1)
    run = zygote.run(trial_spec(cpu_layout(**PLANNED, stage_rotation=1), settings=settings), tmp_path)
    assert run.exit_codes == (0, 0), run.logs
    timeline = run.measurement.timeline
    assert timeline is not None
    assert [lane.pipeline_rank for lane in timeline.ranks] == [1, 0]
    assert any("I" in word for lane in timeline.ranks for word in lane.actions)
    assert not delegates_left(tmp_path)


@pytest.mark.parametrize("num_delegates", [1, 4])
@pytest.mark.oracle
def test_a_trial_under_a_limit_of_memory_runs_no_further_ahead_than_it_allows(
    num_delegates: int, zygote: Zygote, tmp_path: Path
) -> None:
    settings = replace(FIVE_STEPS, memory_budget_bytes=400 * 2**20)
    run = zygote.run(trial_spec(cpu_layout(**PLANNED, num_delegates=num_delegates), settings=settings), tmp_path)
    assert run.exit_codes == (0, 0), run.logs
