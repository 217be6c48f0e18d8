"""What a sweep runs next: for a front, for lossy layouts, and what it cuts short."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from autotuner.core.choices import GradientSync, Recompute
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.layout import Layout
from autotuner.core.objective import Metric, Objective
from autotuner.core.run import StopReason
from autotuner.core.sweep import Budget, RunTrial, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.runs.instructions import Finish, RunGate
from autotuner.runs.sweep_run import SweepMachine
from autotuner.runs.sweep_study import HEALTHY_VALUE, LosingPruner
from autotuner.search.sampler.pareto import on_front
from autotuner.search.space.trainers import trial_space
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

# ---------------------------------------------------------------- front plan
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
    resource_cost = resource_cost_of(order.layout, request.trial_job, order.prediction, found)
    usual = {"prediction": order.prediction, "started_at": 0.0, "finished_at": 10.0}
    return trial(
        order.layout, order.number, **usual | {"measurement": replace(found, resource_cost=resource_cost)} | changes
    )


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
            assert one.values[1] == pytest.approx(Metric.TOKENS_PER_JOULE.of(reached, present(reached.resource_cost)))


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
    assert len({trial.layout for trial in trials}) == plan.expected_improvement.num_candidates
    request = front_request(budget=Budget(num_trials=1000, min_gain=0, patience=3))
    plan = plan_for(request)
    trials = run(plan, request, 1000)
    finish = plan.decide(0.0)
    assert isinstance(finish, Finish)
    assert finish.detail.startswith("3 trials in a row did not add 1 % to the Pareto front")
    assert {trial.number for trial in on_front(FRONT, trials)} <= {trial.number for trial in trials[:-3]}


def test_a_trial_that_another_would_beat_in_everything_were_it_twice_as_fast_is_to_be_pruned() -> None:
    request = front_request(budget=Budget(prune_below=0.5))
    plan = plan_for(request)
    order = ordered(plan)
    plan.finished(ended(order, request, step_time_s=1e-3))
    number = ordered(plan).number
    assert plan.reported(number, step_report(0, step_time_s=4.0)) is None
    stopped = present(plan.reported(number, step_report(1, step_time_s=4.0)))
    assert "even at 2 times this speed, another trial would be better in every metric" in stopped.detail
    assert "token/J" in stopped.detail


def test_a_slow_trial_that_is_simpler_than_all_others_goes_on() -> None:
    space = tiny_space(tensor_parallel_degree=(1, 2), pipeline_parallel_degree=(1,))
    request = front_request(space=space, budget=Budget(prune_below=0.5))
    plan = plan_for(request)
    orders = [ordered(plan) for _ in range(8)]
    by_complexity = sorted(
        orders, key=lambda one: resource_cost_of(one.layout, request.trial_job, one.prediction).complexity
    )
    simplest, other = by_complexity[0], by_complexity[-1]
    plan.finished(ended(other, request, step_time_s=1e-3))
    assert not any(plan.reported(simplest.number, step_report(step, step_time_s=9.0)) for step in range(4))


def test_everything_on_the_front_that_is_not_numerically_equivalent_is_gated() -> None:
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


# ---------------------------------------------------------------- lossy plan
def lossy_request(**changes: object) -> SweepRequest:
    """Two replicas that exchange all, or some components of three micro-batch sizes."""
    space = tiny_space(
        gradient_sync=(GradientSync.FULL, GradientSync.DEMO),
        sync_top_k=(2, 4),
        micro_batch_size=(1, 2),
        pipeline_parallel_degree=(1,),
        tensor_parallel_degree=(1,),
        data_parallel_shard_degree=(1,),
    )
    request = sweep_request(space=space, budget=Budget(num_trials=1000, min_gain=0, prune_below=0.0))
    return replace(request, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def lossy_plan_for(request: SweepRequest) -> SweepMachine:
    return SweepMachine(request, [], started_at=0.0)


def finished(order: RunTrial, *, lossy_s: float) -> Trial:
    """What is lossy takes so long, all else a second; larger micro-batches a little less."""
    layout = order.layout
    seconds = (lossy_s if layout.needs_passed_gate else 1.0) * (1 - 0.01 * layout.micro_batch_size)
    reached = measurement(step_time_s=seconds, mfu=0.4 / seconds, peak_bytes=(1,))
    times = {"started_at": 0.0, "finished_at": 10.0}
    return trial(layout, order.number, prediction=order.prediction, measurement=reached, **times)


def played(
    plan: SweepMachine, verdict: GateOutcome, finish: Callable[[RunTrial], Trial]
) -> tuple[list[Trial], list[Layout]]:
    """Every trial as it stands at the end, and what was trained in a gate, of which all have this verdict."""
    trials: dict[int, Trial] = {}
    trained = []
    while not isinstance(order := plan.decide(0.0), Finish):
        if isinstance(order, RunTrial):
            trials[order.number] = finish(order)
            plan.finished(trials[order.number])
            continue
        assert isinstance(order, RunGate)
        found = GateResult(outcome=verdict, detail="", reference=order.reference, tolerance=0.02, target_loss=4.0)
        if order.known is None:
            trained.append(order.trial.layout)
        plan.gate_started(order.trial, 0.0)
        trials[order.trial.number] = replace(order.trial, gate=order.known or found)
        plan.gate_ended(trials[order.trial.number])
    return list(trials.values()), trained


def test_the_leading_layout_is_gated_first_and_its_verdict_ranks_all_numerically_equal_layouts() -> None:
    request = lossy_request()
    trials, trained = played(lossy_plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=0.5))
    assert sorted(layout.sync_top_k for layout in trained) in ([2, 4], [2], [4])  # one for each that led, none twice
    ranked = request.objective.ranked(trials)
    assert ranked[0].layout.gradient_sync == GradientSync.DEMO
    assert all(trial.gate is not None for trial in ranked if trial.layout.needs_passed_gate)
    shared = [trial for trial in trials if trial.gate is not None and trial.gate.shared_from is not None]
    assert shared


def test_a_layout_that_fails_its_gate_has_no_rank_and_no_layout_that_sends_less_is_tried() -> None:
    request = lossy_request()
    trials, trained = played(lossy_plan_for(request), GateOutcome.FAILED, partial(finished, lossy_s=0.5))
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))
    lossy = [trial.layout for trial in trials if trial.layout.needs_passed_gate]
    assert len({layout.sync_top_k for layout in trained}) == len(trained)
    assert len(lossy) < len([trial for trial in trials if not trial.layout.needs_passed_gate])


def test_slower_or_ungated_exchanges_are_never_trained_in_a_gate_and_have_no_rank() -> None:
    request = lossy_request()
    trials, trained = played(lossy_plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=2.0))
    assert not trained
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))
    request = lossy_request(convergence_gate=ConvergenceGate(enabled=False))
    trials, trained = played(lossy_plan_for(request), GateOutcome.PASSED, partial(finished, lossy_s=0.5))
    assert not trained
    assert any(trial.layout.needs_passed_gate for trial in trials)
    assert all(not trial.layout.needs_passed_gate for trial in request.objective.ranked(trials))


def test_a_space_that_names_an_exchange_alone_tries_a_ladder_of_its_details() -> None:
    space = trial_space(tiny_job(), None, {"gradient_sync": (GradientSync.FULL, GradientSync.DEMO)})
    assert space.values("sync_top_k") == (2, 4, 8)
    assert space.values("sync_sign") == (True, False)
    assert space.values("sync_period") == (16,)


# ---------------------------------------------------------------- pruner
def study_with_best(value: float | None, fraction: float) -> optuna.Study:
    study = optuna.create_study(direction="maximize", pruner=LosingPruner(fraction))
    if value is not None:
        study.add_trial(optuna.trial.create_trial(value=value))
    return study


def pruned(study: optuna.Study, *reports: float) -> bool:
    trial = study.ask()
    for step, value in enumerate(reports):
        trial.report(value, step)
    return trial.should_prune()


@pytest.mark.parametrize(
    ("best", "fraction", "reports", "loses"),
    [
        pytest.param(0.4, 0.5, (0.10, 0.15), True, id="stays below the fraction of the best"),
        pytest.param(0.4, 0.5, (0.25, 0.05), False, id="its best step reaches the fraction"),
        pytest.param(0.4, 0.5, (0.01,), False, id="one report is too few to judge"),
        pytest.param(None, 0.5, (0.01, 0.01), False, id="nothing to lose against"),
        pytest.param(0.4, 0.0, (0.0, 0.0), False, id="a fraction of zero never prunes"),
    ],
)
def test_a_trial_is_pruned_whose_best_step_stays_far_below_the_best(
    best: float | None, fraction: float, reports: tuple[float, ...], loses: bool
) -> None:
    assert pruned(study_with_best(best, fraction), *reports) is loses


def test_healthy_steps_are_held_to_the_healthy_value_of_the_best_not_to_what_faults_left_of_it() -> None:
    study = study_with_best(None, 0.5)
    study.add_trial(optuna.trial.create_trial(value=0.1, user_attrs={HEALTHY_VALUE: 0.4}))
    assert pruned(study, 0.10, 0.15)
    assert not pruned(study, 0.25, 0.05)


PRUNER_FRONT = (Metric.MFU, Metric.SIMPLICITY)


def test_a_trial_falls_behind_where_another_would_beat_it_however_fast_in_all_that_is_a_rate() -> None:
    reports = [(0.10, 0.5), (0.15, 0.5)]
    assert LosingPruner(0.5).falls_behind(reports, [(0.31, 0.5)], PRUNER_FRONT)
    assert not LosingPruner(0.5).falls_behind(reports, [(0.29, 0.5)], PRUNER_FRONT)
    assert not LosingPruner(0.5).falls_behind([(0.01, 0.5)] * 2, [(0.9, 0.4)], PRUNER_FRONT)


@pytest.mark.parametrize(("fraction", "num_reports"), [(0.0, 5), (0.5, 1)])
def test_no_fraction_and_one_report_end_no_trial_of_a_front(fraction: float, num_reports: int) -> None:
    assert not LosingPruner(fraction).falls_behind([(0.01, 0.1)] * num_reports, [(0.9, 0.9)], PRUNER_FRONT)
