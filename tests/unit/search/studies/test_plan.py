from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.run import Finish, RunState
from autotuner.core.study import OptimizerTrial, StudyBudget
from autotuner.core.trial import FailureKind, TrialFailure, TrialState
from autotuner.search.studies.plan import StudyPlan
from tests.studies import curve, reached_trial, study_request, study_trial


def asked(plan: StudyPlan) -> OptimizerTrial:
    instruction = plan.next()
    assert isinstance(instruction, OptimizerTrial)
    return instruction


def test_trials_are_numbered_in_the_order_in_which_they_are_asked_for() -> None:
    plan = StudyPlan("os-test", study_request(), [])
    first = asked(plan)
    plan.ended(replace(first, curve=curve(6.0, 5.9)), pruned=None, failure=None)
    assert (first.number, first.id, asked(plan).number) == (0, "os-test-0000", 1)


def test_an_interrupted_trial_is_tried_again_before_a_new_one() -> None:
    interrupted = study_trial(1, 6.0, state=TrialState.RUNNING)
    assert asked(StudyPlan("os-test", study_request(), [study_trial(0, 6.0, 5.9), interrupted])) == interrupted


def test_a_trial_trains_for_as_many_steps_as_its_samples_last() -> None:
    plan = StudyPlan("os-test", study_request(), [])
    trial = asked(plan)
    spec = plan.spec(trial)
    assert spec.optimizer == trial.candidate.optimizer
    assert spec.settings.measured_steps == spec.settings.max_measured_steps == 320 // 16
    assert (spec.settings.warmup_steps, spec.settings.profiled_steps, spec.settings.num_runs) == (0, 0, 1)
    assert spec.workload.global_batch_size == 16


def test_time_and_hours_to_the_target_are_steps_times_the_median_step() -> None:
    plan = StudyPlan("os-test", study_request(), [])
    trial = replace(asked(plan), curve=curve(6.0, 5.0, 4.9, 4.8, step_time_s=0.5))
    reached = plan.reached(trial)
    assert reached is not None
    assert (reached.num_steps, reached.num_samples, reached.time_s) == (3, 48, 1.5)
    assert reached.accelerator_hours == pytest.approx(1.5 * 2 / 3600)
    assert reached.cost is None  # the cluster has no price


def test_cost_is_told_at_the_price_of_the_cluster() -> None:
    request = study_request()
    priced = replace(request.job, cluster=replace(request.job.cluster, price_per_accelerator_hour=3.0))
    plan = StudyPlan("os-test", replace(request, job=priced), [])
    reached = plan.reached(replace(asked(plan), curve=curve(4.9, 4.9, 4.9)))
    assert reached is not None
    assert reached.cost == pytest.approx(3.0 * reached.accelerator_hours)


@pytest.mark.parametrize(
    ("losses", "pruned", "failure", "state"),
    [
        ((5.0, 4.9, 4.8), None, None, TrialState.COMPLETE),
        ((6.0, 5.9, 5.8), "it loses", None, TrialState.PRUNED),
        ((6.0, 5.9, 5.8), None, TrialFailure(kind=FailureKind.NUMERICS, message="nan"), TrialState.FAILED),
        ((6.0, 5.9, 5.8), None, None, TrialState.COMPLETE),
    ],
)
def test_every_trial_says_how_it_ended(
    losses: tuple[float, ...], pruned: str | None, failure: TrialFailure | None, state: TrialState
) -> None:
    plan = StudyPlan("os-test", study_request(), [])
    ended = plan.ended(replace(asked(plan), curve=curve(*losses)), pruned=pruned, failure=failure)
    assert ended.state is state
    assert ended.detail
    assert (ended.reached is not None) == (losses[-1] < 5.0)


def test_a_study_ends_with_its_budget_and_fails_where_none_came_to_the_target() -> None:
    reached = [reached_trial(number, 1.0, 1.0) for number in range(4)]
    missed = [study_trial(number, 6.0, 5.9) for number in range(4)]
    assert StudyPlan("os-test", study_request(), reached).next() == Finish(
        state=RunState.COMPLETE, detail="4 candidates were tried, and 4 came to the target"
    )
    end = StudyPlan("os-test", study_request(), missed).next()
    assert isinstance(end, Finish)
    assert end.state is RunState.FAILED


def test_accelerator_hours_end_a_study_before_its_trials() -> None:
    budget = StudyBudget(num_trials=9, accelerator_hours=1e-4)
    end = StudyPlan("os-test", study_request(budget=budget), [study_trial(0, 6.0, 5.9)]).next()
    assert isinstance(end, Finish)
    assert "accelerator-hours are spent" in end.detail
