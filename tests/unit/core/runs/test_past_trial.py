from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.past_trial import PastTrial
from autotuner.errors import InvalidInput
from tests.builders import big_job

_JOB = big_job()
_TRIAL = PastTrial(
    job=_JOB,
    layout=Layout(data_parallel_shard_degree=_JOB.cluster.world_size),
    step_time_s=1.0,
    sweep_id="s",
    finished_at=0.0,
)


def test_a_trial_without_a_step_time_ran_out_of_memory() -> None:
    assert replace(_TRIAL, step_time_s=None).ran_out_of_memory
    assert not _TRIAL.ran_out_of_memory


def test_a_step_time_of_zero_is_refused() -> None:
    with pytest.raises(InvalidInput, match="step_time_s"):
        replace(_TRIAL, step_time_s=0.0)


def test_a_layout_of_other_ranks_than_the_cluster_has_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ranks"):
        replace(_TRIAL, layout=Layout())
