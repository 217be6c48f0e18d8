from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.study import LEARNING_RATES, OptimizerSpace, OptimizerTrial, PruneReason, StudyBudget
from autotuner.core.trial import FailureKind, TrialFailure, TrialState
from autotuner.core.trial_spec import OptimizerName
from autotuner.report.study import candidate_line, end_in_words
from autotuner.search.planning.optimizer_study import Pruning, Scale, StudyEnd, StudyPlan, propose, starts_of
from tests.builders import cpu_layout, present
from tests.studies import candidate, curve, reached_trial, study_request, study_trial


# ---------------------------------------------------------------- plan
def asked(plan: StudyPlan) -> OptimizerTrial:
    instruction = plan.next()
    assert isinstance(instruction, OptimizerTrial)
    return instruction


def test_trials_come_in_order_interrupted_ones_first_and_train_as_long_as_their_samples() -> None:
    plan = StudyPlan("os-test", study_request(), [])
    first = asked(plan)
    plan.ended(replace(first, curve=curve(6.0, 5.9)), pruned=None, failure=None)
    assert (first.number, first.id, asked(plan).number) == (0, "os-test-0000", 1)
    interrupted = study_trial(1, 6.0, state=TrialState.RUNNING)
    assert asked(StudyPlan("os-test", study_request(), [study_trial(0, 6.0, 5.9), interrupted])) == interrupted
    trial = asked(plan)
    spec = plan.spec(trial)
    assert spec.optimizer == trial.candidate.optimizer
    assert spec.settings.measured_steps == spec.settings.max_measured_steps == 320 // 16
    assert (spec.settings.warmup_steps, spec.settings.profiled_steps, spec.settings.num_runs) == (0, 0, 1)
    assert spec.workload.global_batch_size == 16


def test_time_hours_and_cost_to_the_target_are_steps_times_the_median_step() -> None:
    plan = StudyPlan("os-test", study_request(), [])
    trial = replace(asked(plan), curve=curve(6.0, 5.0, 4.9, 4.8, step_time_s=0.5))
    reached = present(plan.reached(trial))
    assert (reached.num_steps, reached.num_samples, reached.time_s) == (3, 48, 1.5)
    assert reached.accelerator_hours == pytest.approx(1.5 * 2 / 3600)
    assert reached.cost is None  # the cluster has no price
    request = study_request()
    priced = replace(request.job, cluster=replace(request.job.cluster, price_per_accelerator_hour=3.0))
    plan = StudyPlan("os-test", replace(request, job=priced), [])
    reached = present(plan.reached(replace(asked(plan), curve=curve(4.9, 4.9, 4.9))))
    assert reached.cost == pytest.approx(3.0 * reached.accelerator_hours)


@pytest.mark.parametrize(
    ("losses", "pruned", "failure", "state"),
    [
        ((5.0, 4.9, 4.8), None, None, TrialState.COMPLETE),
        ((6.0, 5.9, 5.8), PruneReason(time_s=3.0, beaten_by=2), None, TrialState.PRUNED),
        ((6.0, 5.9, 5.8), None, TrialFailure(kind=FailureKind.NUMERICS, message="nan"), TrialState.FAILED),
        ((6.0, 5.9, 5.8), None, None, TrialState.COMPLETE),
    ],
)
def test_every_trial_says_how_it_ended(
    losses: tuple[float, ...], pruned: PruneReason | None, failure: TrialFailure | None, state: TrialState
) -> None:
    plan = StudyPlan("os-test", study_request(), [])
    ended = plan.ended(replace(asked(plan), curve=curve(*losses)), pruned=pruned, failure=failure)
    assert ended.state is state
    assert "the target" in candidate_line(ended) or ended.pruned or ended.detail
    assert (ended.reached is not None) == (losses[-1] < 5.0)


def test_a_study_ends_with_its_budget_or_hours_and_fails_where_none_came_to_the_target() -> None:
    reached = [reached_trial(number, 1.0, 1.0) for number in range(4)]
    missed = [study_trial(number, 6.0, 5.9) for number in range(4)]
    end = StudyPlan("os-test", study_request(), reached).next()
    assert isinstance(end, StudyEnd)
    assert end_in_words(end, study_request()) == "4 candidates were tried, and 4 reached the target"
    end = StudyPlan("os-test", study_request(), missed).next()
    assert isinstance(end, StudyEnd)
    assert end_in_words(end, study_request()) == "4 candidates were tried, and none reached the target"
    budget = StudyBudget(num_trials=9, accelerator_hours=1e-4)
    end = StudyPlan("os-test", study_request(budget=budget), [study_trial(0, 6.0, 5.9)]).next()
    assert isinstance(end, StudyEnd)
    assert "accelerator-hours are spent" in end_in_words(end, study_request(budget=budget))


# ---------------------------------------------------------------- proposing
REQUEST = study_request(space=OptimizerSpace(global_batch_sizes=(16, 32), data_parallel_degrees=(1, 2)))
STARTS = starts_of(REQUEST)


def proposed(trials: list[OptimizerTrial]) -> list[OptimizerTrial]:
    """With one candidate more, which comes to the target sooner the nearer its learning rate is to 1e-3."""
    chosen = propose(REQUEST, STARTS, trials)
    rate = chosen.optimizer.learning_rate
    time_s = 1 + abs(rate - 1e-3) * 1e3 + (chosen.optimizer.name is not OptimizerName.ADAMW) * 10
    return [*trials, reached_trial(len(trials), time_s, time_s, candidate=chosen)]


def after(num_trials: int) -> list[OptimizerTrial]:
    trials: list[OptimizerTrial] = []
    for _ in range(num_trials):
        trials = proposed(trials)
    return trials


def test_candidates_begin_in_the_middle_of_their_ranges_and_go_on_with_the_soonest_optimizer() -> None:
    """TPE draws at random ten times; of the twenty behind them more than half are of the one that won."""
    assert [trial.candidate.optimizer.name for trial in after(3)] == list(OptimizerName)
    for trial in after(14):
        chosen = trial.candidate.optimizer
        rates = LEARNING_RATES[chosen.name]
        assert rates.low <= chosen.learning_rate <= rates.high
        assert 0.8 <= chosen.beta1 <= 0.95
        assert trial.candidate.global_batch_size in (16, 32)
    later = after(30)[10:]
    assert sum(trial.candidate.optimizer.name is OptimizerName.ADAMW for trial in later) > len(later) / 2


def test_a_new_worker_proposes_the_same_candidates_of_a_study_and_learns_from_failures() -> None:
    trials = after(12)
    assert propose(REQUEST, STARTS, trials) == propose(REQUEST, STARTS, trials)
    assert propose(REQUEST, STARTS, trials[:11]) == trials[11].candidate
    failed = study_trial(3, 6.0, 9.0, state=TrialState.FAILED)
    unstarted = study_trial(4, state=TrialState.FAILED)
    trials = [*after(3), failed, unstarted, study_trial(5, 6.0, 5.5)]
    assert propose(REQUEST, STARTS, trials).optimizer.learning_rate > 0


# ---------------------------------------------------------------- pruning
PRUNING_REQUEST = study_request()


def test_a_candidate_ends_that_is_dearer_than_another_or_above_the_median_of_five() -> None:
    pruning = Pruning(PRUNING_REQUEST, [reached_trial(7, 4.0, 4.0 * 2 / 3600)])
    running = study_trial(8, 6.0, 5.9, 5.8)
    assert pruning.verdict(running) is None
    verdict = pruning.verdict(study_trial(8, 6.0, 5.9, 5.8, 5.7))
    assert verdict == PruneReason(time_s=4.0, beaten_by=7)
    on_one_rank = study_trial(8, 6.0, 5.9, 5.8, 5.7, 5.6, world_size=1)
    assert Pruning(PRUNING_REQUEST, [reached_trial(7, 4.0, 4.0 * 2 / 3600)]).verdict(on_one_rank) is None
    others = [study_trial(number, 6.0, 5.0 + number / 10, 5.0 + number / 10, 5.0) for number in range(5)]
    assert Pruning(PRUNING_REQUEST, others).verdict(study_trial(9, 6.0, 5.9, 5.9)) is not None
    assert Pruning(PRUNING_REQUEST, others).verdict(study_trial(9, 6.0, 5.1, 5.1)) is None
    assert Pruning(PRUNING_REQUEST, others[:4]).verdict(study_trial(9, 6.0, 5.9, 5.9)) is None
    others = [study_trial(number, 6.0, 5.0, 5.0, 5.0) for number in range(5)]
    warming = study_trial(9, 6.0, 5.9, 5.9, candidate=candidate(warmup_steps=10))
    assert Pruning(PRUNING_REQUEST, others).verdict(warming) is None


# ---------------------------------------------------------------- starts
def test_untriable_candidates_are_left_out_with_their_rule_and_an_empty_space_is_refused() -> None:
    space = OptimizerSpace(global_batch_sizes=(6, 16), data_parallel_degrees=(1, 2))
    starts = starts_of(study_request(space=space))
    legal = (Scale(global_batch_size=16, data_parallel_degree=1), Scale(global_batch_size=16, data_parallel_degree=2))
    assert starts.scales == dict.fromkeys(OptimizerName, legal)
    assert len(starts.refusals) == 2
    split = cpu_layout(tensor_parallel_degree=2, micro_batch_size=4)
    starts = starts_of(study_request(layout=split))
    assert OptimizerName.LAMB not in starts.scales
    assert starts.refusals[0].startswith("lamb: LAMB needs the norm of each whole tensor")
    with pytest.raises(InvalidInput, match="has no combination that can be tried"):
        starts_of(study_request(space=OptimizerSpace(global_batch_sizes=(7,))))
