"""What a sweep may be asked, and where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.layouts.choice import GradientClip
from autotuner.core.layouts.search_space import SearchSpace
from autotuner.core.runs.challenge import Challenge
from autotuner.core.runs.comparison import SequentialTest
from autotuner.core.runs.objective import Objective
from autotuner.core.runs.sweep import Budget, SweepState
from autotuner.core.runs.trial_spec import TrialSettings
from autotuner.errors import InvalidInput
from tests.builders import cpu_cluster, cpu_layout, sweep_request, tiny_job


@pytest.mark.parametrize("field", ["num_trials", "wall_clock_s", "accelerator_hours", "patience"])
def test_a_budget_of_nothing_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Budget(**{field: 0})
    assert caught.value.field == field


def test_queued_running_and_paused_sweeps_may_change_by_themselves_or_be_taken_up() -> None:
    unfinished = [SweepState.QUEUED, SweepState.RUNNING, SweepState.PAUSED]
    assert [state for state in SweepState if not state.finished] == unfinished


TRACE = FaultTrace.parse("3;0_1;0.06", num_steps=20)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"job": tiny_job(1)}, "has no link 0_1: its links join 1 accelerators"),
        ({"trial_cluster": cpu_cluster(2), "job": tiny_job(8)}, "has other links than the cluster"),
        ({"trial": TrialSettings(proxy_layers_per_stage=(1, 2))}, "where few layers run"),
        ({"challenge": Challenge(test=SequentialTest(), incumbent=cpu_layout())}, "links as they are"),
    ],
)
def test_a_fault_trace_is_refused_where_it_could_not_befall_what_is_measured(changes: Any, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        sweep_request(**{"fault_trace": TRACE, **changes})


def test_steps_under_a_fault_trace_have_time_of_their_own() -> None:
    settings = TrialSettings(timeout_s=100.0, faulty_step_timeout_s=5.0)
    assert sweep_request(trial=settings).trial_timeout_s == 100.0
    assert sweep_request(trial=settings, fault_trace=TRACE).trial_timeout_s == 200.0


def test_nothing_is_ranked_by_faults_that_befall_nobody() -> None:
    with pytest.raises(InvalidInput, match="needs a fault_trace"):
        sweep_request(objective=Objective(under_faults=True))


def test_nothing_is_clipped_early_where_trials_have_no_norm() -> None:
    space = SearchSpace(gradient_clip=(GradientClip.POST, GradientClip.BUCKET))
    incumbent = cpu_layout(data_parallel_replicate_degree=2, gradient_clip=GradientClip.PRE)
    for changes in ({"space": space}, {"challenge": Challenge(incumbent=incumbent)}):
        with pytest.raises(InvalidInput, match=r"must be set where clip (bucket|pre) is tried") as caught:
            sweep_request(**changes)
        assert caught.value.field == "trial.max_gradient_norm"
    assert sweep_request(space=space, trial=TrialSettings(max_gradient_norm=1.0)).space == space
