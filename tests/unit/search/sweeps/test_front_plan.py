"""A sweep that looks for a front: what its study is told, what it tries, when a trial falls behind, when it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import TrialState as OptunaState

from autotuner.core.choices import GradientSync, Recompute
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.objective import Metric, Objective
from autotuner.core.run import StopReason
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.runs.sweep import SweepMachine
from autotuner.search.pareto import on_front
from autotuner.search.sweeps.instructions import Finish, RunTrial
from tests.builders import (
    cpu_cluster,
    failure,
    measurement,
    present,
    step_report,
    sweep_request,
    tiny_job,
    tiny_space,
    trial,
)
from tests.unit.search.sweeps.test_lossy_plan import played

FRONT = Objective(front=(Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY))

FEW = tiny_space(recompute=(Recompute.NONE,), micro_batch_size=(1, 2), sequence_parallel=(False,))


def front_request(**changes: Any) -> SweepRequest:
    cluster = cpu_cluster()
    cluster = replace(cluster, accelerator=replace(cluster.accelerator, power_w=65.0))
    request = sweep_request(job=tiny_job(cluster=cluster), objective=FRONT, budget=Budget(num_trials=1000, min_gain=0))
    return replace(request, **changes)


def plan_for(request: SweepRequest, trials: list[Trial] | None = None) -> SweepMachine:
    return SweepMachine(request, trials or [], started_at=0.0)


def ended(order: RunTrial, request: SweepRequest, step_time_s: float | None = None, **changes: Any) -> Trial:
    """It took as long as predicted, unless another step time is given."""
    seconds = step_time_s or order.prediction.step_time.total_s
    found = measurement(step_time_s=seconds, mfu=0.4 / seconds, tokens_per_s=512 / seconds, peak_bytes=(1,))
    footprint = footprint_of(order.layout, request.trial_job, order.prediction, found)
    usual = {"prediction": order.prediction, "started_at": 0.0, "finished_at": 10.0}
    return trial(order.layout, order.number, **usual | {"measurement": replace(found, footprint=footprint)} | changes)


def ordered(plan: SweepMachine) -> RunTrial:
    instruction = plan.decide(0.0)
    assert isinstance(instruction, RunTrial), instruction
    return instruction


def run(plan: SweepMachine, request: SweepRequest, most: int, **changes: Any) -> list[Trial]:
    trials: list[Trial] = []
    while len(trials) < most and isinstance(order := plan.decide(0.0), RunTrial):
        trials.append(ended(order, request, **changes))
        plan.finished(trials[-1])
    return trials


def test_the_study_is_told_a_value_by_each_metric_also_when_it_is_rebuilt() -> None:
    request = front_request()
    plan = plan_for(request)
    trials = [
        *run(plan, request, 3),
        *run(plan, request, 1, state=TrialState.FAILED, failure=failure(), measurement=None),
    ]
    for known in (plan, plan_for(request, trials)):
        told = known.study.get_trials(states=(OptunaState.COMPLETE,))
        assert [len(one.values) for one in told] == [3, 3, 3]
        for one, found in zip(told, trials[:3], strict=True):
            reached = present(found.measurement)
            assert one.values[1] == pytest.approx(Metric.TOKENS_PER_JOULE.of(reached, present(reached.footprint)))


def test_a_rebuilt_sweep_tries_what_the_sweep_would_have_and_trials_at_once_differ() -> None:
    request = front_request()
    plan = plan_for(request)
    trials = run(plan, request, 3)
    assert ordered(plan_for(request, trials)).layout == ordered(plan).layout
    plan = plan_for(front_request())
    layouts = [ordered(plan).layout for _ in range(4)]
    assert len(set(layouts)) == 4


def test_a_sweep_has_found_the_front_when_it_can_hardly_grow_and_says_so() -> None:
    request = front_request(space=FEW, budget=Budget(num_trials=1000, min_gain=0.01))
    plan = plan_for(request)
    found = run(plan, request, 1000)
    finish = plan.decide(0.0)
    assert isinstance(finish, Finish)
    assert finish.reason is StopReason.NOTHING_TO_GAIN
    assert "raise the hypervolume of the front by" in finish.detail
    every = run(plan_for(front_request(space=FEW)), request, 1000)
    assert len(found) < len(every)
    assert {trial.layout for trial in on_front(FRONT, every)} <= {trial.layout for trial in found}


def test_a_front_is_sought_until_every_layout_was_tried_or_patience_ends_it() -> None:
    request = front_request(space=FEW)
    plan = plan_for(request)
    trials = run(plan, request, 1000)
    finish = plan.decide(0.0)
    assert isinstance(finish, Finish)
    assert finish.reason is StopReason.SPACE_EXHAUSTED
    assert len({trial.layout for trial in trials}) == plan.prospects.num_candidates
    request = front_request(budget=Budget(num_trials=1000, min_gain=0, patience=3))
    plan = plan_for(request)
    trials = run(plan, request, 1000)
    finish = plan.decide(0.0)
    assert isinstance(finish, Finish)
    assert finish.detail.startswith("3 trials in a row did not add 1 % to the front")
    assert {trial.number for trial in on_front(FRONT, trials)} <= {trial.number for trial in trials[:-3]}


def test_a_trial_that_another_would_beat_in_everything_were_it_twice_as_fast_is_to_be_pruned() -> None:
    request = front_request(budget=Budget(prune_below=0.5))
    plan = plan_for(request)
    order = ordered(plan)
    plan.finished(ended(order, request, step_time_s=1e-3))
    number = ordered(plan).number
    assert plan.reported(number, step_report(0, step_time_s=4.0)) is None
    stopped = present(plan.reported(number, step_report(1, step_time_s=4.0)))
    assert "were it 2 times as fast, another would still beat it in everything" in stopped.detail
    assert "token/J" in stopped.detail


def test_a_slow_trial_that_is_simpler_than_all_others_goes_on() -> None:
    space = tiny_space(tensor_parallel_degree=(1, 2), pipeline_parallel_degree=(1,))
    request = front_request(space=space, budget=Budget(prune_below=0.5))
    plan = plan_for(request)
    orders = [ordered(plan) for _ in range(8)]
    by_complexity = sorted(
        orders, key=lambda one: footprint_of(one.layout, request.trial_job, one.prediction).complexity
    )
    simplest, other = by_complexity[0], by_complexity[-1]
    plan.finished(ended(other, request, step_time_s=1e-3))
    assert not any(plan.reported(simplest.number, step_report(step, step_time_s=9.0)) for step in range(4))


def test_everything_on_the_front_that_changes_the_mathematics_is_gated() -> None:
    space = tiny_space(
        gradient_sync=(GradientSync.FULL, GradientSync.DEMO),
        pipeline_parallel_degree=(1,),
        tensor_parallel_degree=(1,),
        data_parallel_shard_degree=(1,),
    )
    request = front_request(space=space, budget=Budget(num_trials=1000, min_gain=0, prune_below=0.0))

    def finish(order: RunTrial) -> Trial:
        return ended(order, request, step_time_s=1.0 if order.layout.is_equivalent else 0.5)

    trials, _ = played(plan_for(request), GateOutcome.PASSED, finish)
    leading = on_front(FRONT, FRONT.leading(trials))
    assert any(not trial.layout.is_equivalent for trial in leading)
    assert all(trial.gate is not None for trial in leading if not trial.layout.is_equivalent)
