"""Tests of ``autotuner.core.sweep``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.choices import ExportFormat, GradientClip
from autotuner.core.cluster import Cluster
from autotuner.core.comparison import Challenge, SequentialTest
from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.objective import Objective
from autotuner.core.run import RunState
from autotuner.core.space import SearchSpace
from autotuner.core.stack import Stack
from autotuner.core.sweep import Budget, job_key
from autotuner.core.trial_spec import Trainer, TrialSettings
from tests.builders import cpu_cluster, cpu_layout, sweep_request, tiny_job, tiny_model


def measured_cluster(rate: float) -> Cluster:
    """A machine whose cores were just measured."""
    cluster = cpu_cluster()
    core = replace(cluster.accelerator, fp32_flop_per_s=rate, bf16_flop_per_s=2 * rate, peak_is_measured=True)
    return replace(cluster, accelerator=core)


def test_space_budget_seed_name_and_challenge_have_no_part_in_it() -> None:
    challenge = Challenge(incumbent=Layout())
    asked = sweep_request(budget=Budget(num_trials=99), seed=5, name="nightly", challenge=challenge, uses_history=False)
    assert job_key(asked) == job_key(sweep_request())


def test_another_model_cluster_or_smaller_cluster_is_another_job() -> None:
    requests = (
        sweep_request(),
        sweep_request(job=tiny_job(model=tiny_model(num_layers=6))),
        sweep_request(job=tiny_job(4)),
        sweep_request(job=tiny_job(4), trial_cluster=cpu_cluster(2)),
    )
    assert len({job_key(request) for request in requests}) == 4


def test_another_trainer_or_stack_is_another_job() -> None:
    trainer = Trainer(name="ours", format=ExportFormat.MEGATRON_LM)
    requests = (
        sweep_request(),
        sweep_request(trainer=trainer),
        sweep_request(job=tiny_job(stack=Stack(name="other"))),
    )
    assert len({job_key(request) for request in requests}) == 3


def test_the_name_of_a_model_and_what_predictions_know_of_a_stack_have_no_part_in_it() -> None:
    renamed = sweep_request(job=tiny_job(model=tiny_model(name="ours"), stack=Stack(matrix_slowdown=1.5)))
    assert job_key(renamed) == job_key(sweep_request())


def test_rates_that_were_measured_to_answer_have_no_part_in_it() -> None:
    first, second = (sweep_request(job=tiny_job(cluster=measured_cluster(rate))) for rate in (100e9, 101e9))
    assert job_key(first) == job_key(second)
    few = (replace(measured_cluster(rate), name="few", accelerators_per_node=1) for rate in (100e9, 101e9))
    smaller = [sweep_request(job=first.job, trial_cluster=cluster) for cluster in few]
    assert len({job_key(request) for request in smaller}) == 1


@pytest.mark.parametrize("field", ["num_trials", "wall_clock_s", "accelerator_hours", "patience"])
def test_a_budget_of_nothing_is_refused_by_name(field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Budget(**{field: 0})
    assert caught.value.field == field


def test_queued_running_and_paused_sweeps_may_change_by_themselves_or_be_taken_up() -> None:
    unfinished = [RunState.QUEUED, RunState.RUNNING, RunState.PAUSED]
    assert [state for state in RunState if not state.is_finished] == unfinished


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
