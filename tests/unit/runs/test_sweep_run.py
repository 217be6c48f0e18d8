from __future__ import annotations

import re
from dataclasses import replace

import pytest
from optuna.trial import TrialState as OptunaState

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import PipelineSchedule, Precision, Recompute, ShardLevel
from autotuner.core.convergence_gate import ConvergenceGate, GateOutcome, GateResult
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import Budget, RunTrial, SweepRequest
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, PastTrial, Trial, TrialState
from autotuner.core.workload import Workload
from autotuner.runs.instructions import Finish, RunGate, Wait
from autotuner.runs.sweep_run import SweepMachine
from tests.builders import failure, measurement, step_report, sweep_request, tiny_space
from tests.unit.runs.challenged import bf16_and_fp8_request

ONE_LAYOUT = tiny_space(
    tensor_parallel_degree=(2,), micro_batch_size=(2,), sequence_parallel=(False,), recompute=(Recompute.NONE,)
)


def plan_for(request: SweepRequest, trials: list[Trial] | None = None) -> SweepMachine:
    return SweepMachine(request, trials or [], started_at=0.0)


def ordered(plan: SweepMachine, now: float = 0.0) -> RunTrial:
    instruction = plan.decide(now)
    assert isinstance(instruction, RunTrial), instruction
    return instruction


def stopped(plan: SweepMachine, now: float = 0.0) -> Finish:
    instruction = plan.decide(now)
    assert isinstance(instruction, Finish), instruction
    return instruction


def trial(order: RunTrial, **changes: object) -> Trial:
    base = Trial(
        id=f"sw-test-{order.number:04d}",
        sweep_id="sw-test",
        number=order.number,
        state=TrialState.COMPLETE,
        layout=order.layout,
        prediction=order.prediction,
        attempts=1,
        started_at=0.0,
        finished_at=10.0,
    )
    if changes.get("state", TrialState.COMPLETE) == TrialState.COMPLETE:
        changes.setdefault("measurement", measurement())
    return replace(base, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def measured_as_predicted(order: RunTrial) -> Measurement:
    step_time_s = order.prediction.step_time.total_s
    return measurement(step_time_s=step_time_s, mfu=order.prediction.mfu, peak_bytes=(1,))


def run(plan: SweepMachine, num_trials: int, **changes: object) -> list[Trial]:
    ended = []
    for _ in range(num_trials):
        ended.append(trial(ordered(plan), **changes))
        plan.finished(ended[-1])
    return ended


def test_a_sweep_ends_when_its_time_is_spent_and_says_how_much() -> None:
    plan = plan_for(sweep_request(budget=Budget(wall_clock_s=60.0)))
    ordered(plan, now=59.0)
    finish = stopped(plan_for(sweep_request(budget=Budget(wall_clock_s=60.0))), now=61.0)
    assert finish.reason == StopReason.TIME_BUDGET
    assert "60 s" in finish.detail


def test_accelerator_hours_are_spent_by_trials_that_ended_and_that_run() -> None:
    plan = plan_for(sweep_request(budget=Budget(accelerator_hours=0.01)))  # two ranks for 18 s
    run(plan, 1, finished_at=10.0)
    run(plan, 1, finished_at=10.0)
    assert stopped(plan).reason == StopReason.ACCELERATOR_HOURS_BUDGET
    plan = plan_for(sweep_request(budget=Budget(accelerator_hours=0.01)))  # two ranks for 18 s
    plan.placed(trial(ordered(plan), state=TrialState.RUNNING, finished_at=None))
    assert not plan.overspent(17.0)
    assert plan.overspent(19.0)


def test_each_trial_says_what_was_expected_to_be_gained_when_it_was_chosen() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=3, min_gain=0)))
    first = ordered(plan)
    assert first.expected_improvement is not None
    assert first.expected_improvement.expected_gain is None  # nothing to be more than
    assert 0 < first.expected_improvement.num_fitting <= first.expected_improvement.num_candidates
    plan.finished(trial(first, measurement=measured_as_predicted(first)))
    second = ordered(plan)
    assert second.expected_improvement is not None
    assert second.expected_improvement.expected_gain is not None
    plan.finished(trial(second, measurement=measured_as_predicted(second)))
    assert (
        plan.expected_improvement.expected_gain != second.expected_improvement.expected_gain
    )  # one more trial was told of


def test_a_sweep_ends_when_no_layout_is_left() -> None:
    request = sweep_request(budget=Budget(num_trials=1000, min_gain=0))
    plan = plan_for(request)
    tried = 0
    while isinstance(plan_step := plan.decide(0.0), RunTrial):
        plan.finished(trial(plan_step))
        tried += 1
    assert isinstance(plan_step, Finish)
    assert plan_step.reason == StopReason.SPACE_EXHAUSTED
    assert str(tried) in plan_step.detail


def test_a_sweep_ends_when_less_is_left_to_gain_than_asked_for_and_says_how_much() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=1000, min_gain=0.02)))
    tried = 0
    while isinstance(order := plan.decide(0.0), RunTrial):
        plan.finished(trial(order, measurement=measured_as_predicted(order)))
        tried += 1
    assert isinstance(order, Finish)
    assert (order.state, order.reason) == (RunState.COMPLETE, StopReason.NOTHING_TO_GAIN)
    found = re.fullmatch(
        r"(\d+) of \d+ .* raise the best MFU by ([\d.]+) %; the least that was asked for is 2 %", order.detail
    )
    assert found, order.detail
    assert int(found[1]) == tried
    assert 0 <= float(found[2]) < 2


@pytest.mark.oracle  # seconds of a sampler's work
def test_a_sweep_with_no_least_gain_tries_every_layout() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=1000, min_gain=0)))
    while isinstance(order := plan.decide(0.0), RunTrial):
        plan.finished(trial(order, measurement=measured_as_predicted(order)))
    assert isinstance(order, Finish)
    found = re.fullmatch(r"(\d+) of (\d+) legal layouts were tried", order.detail)
    assert (order.state, order.reason) == (RunState.COMPLETE, StopReason.SPACE_EXHAUSTED)
    assert found, order.detail
    assert found[1] == found[2]


def test_a_space_of_one_layout_is_tried_once_and_waited_for_before_it_counts_as_exhausted() -> None:
    plan = plan_for(sweep_request(space=ONE_LAYOUT, budget=Budget(num_trials=5)))
    order = ordered(plan)
    assert plan.decide(0.0) == Wait()
    plan.finished(trial(order))
    finish = stopped(plan)
    assert (finish.state, finish.reason) == (RunState.COMPLETE, StopReason.SPACE_EXHAUSTED)
    assert finish.detail == "1 of 1 legal layouts were tried"
    assert (plan.expected_improvement.num_candidates, plan.expected_improvement.expected_gain) == (1, 0.0)


def test_a_space_of_which_nothing_is_likely_to_fit_ends_at_once_and_says_how_much_is_missing() -> None:
    request = sweep_request()
    plan = plan_for(replace(request, trial=replace(request.trial, memory_budget_bytes=1_000)))
    order = plan.decide(0.0)
    assert isinstance(order, Finish)
    assert order.reason == StopReason.SPACE_EXHAUSTED
    said = "0 of 58 legal layouts were tried; none is likely to fit in memory, and the closest one needs"
    assert order.detail.startswith(said)


@pytest.mark.oracle  # seconds of a sampler's work
def test_a_space_that_never_fits_ends_as_failed_and_says_how_many_trials_ran_out_of_memory() -> None:
    request = sweep_request(budget=Budget(num_trials=1000))
    least_bytes = ordered(plan_for(replace(request, space=ONE_LAYOUT))).prediction.memory.total_bytes
    plan = plan_for(replace(request, trial=replace(request.trial, memory_budget_bytes=int(least_bytes))))
    tried = 0
    while isinstance(order := plan.decide(0.0), RunTrial):
        plan.finished(trial(order, state=TrialState.FAILED, failure=failure(FailureKind.OOM)))
        tried += 1
    assert isinstance(order, Finish)
    assert (order.state, order.reason) == (RunState.FAILED, StopReason.SPACE_EXHAUSTED)
    assert "no trial was measured" in order.detail
    assert tried > 0
    assert order.detail.endswith(f"{tried} ran out of memory")


def test_a_sweep_does_not_end_for_lack_of_gain_before_anything_was_measured() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=1000, min_gain=1.0)))
    run(plan, 1, state=TrialState.FAILED, failure=failure(FailureKind.OOM))
    ordered(plan)


def test_patience_ends_a_sweep_unless_a_better_trial_that_is_not_emulated_restores_it() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=100, patience=3)))
    run(plan, 1, measurement=measurement(mfu=0.5))
    run(plan, 3, measurement=measurement(mfu=0.502))  # better by less than the 1 % that counts
    assert stopped(plan).reason == StopReason.NO_IMPROVEMENT
    plan = plan_for(sweep_request(budget=Budget(num_trials=100, patience=3)))
    run(plan, 3, measurement=measurement(mfu=0.4))
    run(plan, 2, measurement=measurement(mfu=0.5))
    ordered(plan)
    space = tiny_space(precision=(Precision.FP8_EMULATED,))
    plan = plan_for(sweep_request(space=space, budget=Budget(num_trials=5, patience=2, min_gain=0)))
    run(plan, 5)
    assert stopped(plan).reason == StopReason.TRIAL_BUDGET  # with no best, there is none to beat


def test_a_sweep_in_which_nothing_runs_fails_but_running_out_of_memory_breaks_no_machine() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=100)))
    run(plan, 8, state=TrialState.FAILED, failure=failure(FailureKind.CRASH))
    finish = stopped(plan)
    assert (finish.state, finish.reason) == (RunState.FAILED, StopReason.ALL_TRIALS_FAIL)
    plan = plan_for(sweep_request(budget=Budget(num_trials=100)))
    run(plan, 1, state=TrialState.FAILED, failure=failure(FailureKind.OOM))
    instruction = plan.decide(0.0)
    assert isinstance(instruction, Finish | RunTrial)
    assert isinstance(instruction, RunTrial) or instruction.reason == StopReason.SPACE_EXHAUSTED


def test_the_demos_ten_trials_cover_tensor_pipeline_and_both_data_parallel_ways_and_three_micro_batch_sizes() -> None:
    job = Job(
        model=load_model("llama-demo"),
        cluster=load_cluster("cpu:2"),
        workload=Workload(seq_len=128, global_batch_size=16),
    )
    space = default_trial_space(
        job
    ).with_axes(  # scripts/demo.sh: twelve on two cores, three of each kind: any ten show all kinds
        micro_batch_size=(2, 4, 8),
        pipeline_schedule=(PipelineSchedule.ONE_F_ONE_B,),
        sequence_parallel=(False,),
        reshard_after_forward=(False,),
        recompute=(Recompute.NONE,),
        shard_level=(ShardLevel.NONE, ShardLevel.PARAMETERS),
    )
    request = sweep_request(job=job, space=space, budget=Budget(num_trials=10, min_gain=0))
    layouts = [ended.layout for ended in run(plan_for(request), 10)]
    for name in (
        "tensor_parallel_degree",
        "pipeline_parallel_degree",
        "data_parallel_replicate_degree",
        "data_parallel_shard_degree",
    ):
        assert any(getattr(layout, name) == 2 for layout in layouts), name
    assert len({layout.micro_batch_size for layout in layouts}) == 3


def test_a_plan_rebuilt_from_its_trials_goes_on_as_if_never_interrupted() -> None:
    request = sweep_request(budget=Budget(num_trials=10))
    whole = plan_for(request)
    first = run(whole, 3, measurement=measurement(mfu=0.3, step_time_s=0.4))
    rebuilt = plan_for(request, first)
    for _ in range(5):
        uninterrupted, resumed = run(whole, 1)[0], run(rebuilt, 1)[0]
        assert (resumed.number, resumed.layout) == (uninterrupted.number, uninterrupted.layout)


def test_an_interrupted_trial_is_ordered_again_under_its_number_even_when_the_budget_is_spent() -> None:
    request = sweep_request()
    first = plan_for(request)
    done = run(first, 1)[0]
    cut_short = trial(ordered(first), state=TrialState.QUEUED, finished_at=None)
    again = ordered(plan_for(request, [done, cut_short]))
    assert (again.number, again.layout, again.stored) == (1, cut_short.layout, cut_short)
    request = sweep_request(budget=Budget(num_trials=1))
    cut_short = trial(ordered(plan_for(request)), state=TrialState.QUEUED, finished_at=None)
    assert ordered(plan_for(request, [cut_short])).stored == cut_short


def test_a_trial_that_is_given_back_is_ordered_again_before_another_and_those_that_run_go_on() -> None:
    plan = plan_for(sweep_request())
    lost, other = ordered(plan), ordered(plan)
    assert plan.reported(lost.number, step_report(0)) is None
    queued = trial(lost, state=TrialState.QUEUED, started_at=None, finished_at=None)
    plan.given_back(queued)
    again = ordered(plan)
    assert (again.number, again.layout, again.stored) == (lost.number, lost.layout, queued)
    assert plan.reported(lost.number, step_report(0)) is None
    for order in (other, again):
        plan.finished(trial(order))
    assert [found.state for found in plan.study.trials] == [OptunaState.COMPLETE] * 2
    assert ordered(plan).number == 2


def test_a_job_costs_from_when_it_has_its_accelerators() -> None:
    plan = plan_for(sweep_request(budget=Budget(accelerator_hours=1.0, min_gain=0)))
    running = trial(ordered(plan), state=TrialState.RUNNING, finished_at=None)
    waits = EngineJob(engine="slurm", name="a", handle="4711", submitted_at=0.0)
    plan.placed(running)
    plan.placed(replace(running, jobs=(waits,)))
    assert plan.overspent(100 * 3600.0) is None
    plan.placed(replace(running, jobs=(replace(waits, phase=EngineJobPhase.RUNNING, started_at=99.75 * 3600.0),)))
    assert plan.overspent(100 * 3600.0) is None
    assert plan.overspent(101 * 3600.0) is not None


def test_a_trial_whose_first_steps_lose_is_to_be_pruned_but_for_those_of_the_warm_up() -> None:
    plan = plan_for(sweep_request(budget=Budget(prune_below=0.5)))
    run(plan, 1, measurement=measurement(step_time_s=1.0))
    number = ordered(plan).number
    assert not any(plan.reported(number, step_report(step, step_time_s=99.0, is_warmup=True)) for step in range(5))
    plan = plan_for(sweep_request(budget=Budget(prune_below=0.5)))
    run(plan, 1, measurement=measurement(step_time_s=1.0))
    number = ordered(plan).number
    assert plan.reported(number, step_report(0, step_time_s=4.0)) is None
    stopped = plan.reported(number, step_report(1, step_time_s=4.0))
    assert stopped is not None
    assert stopped.reason == "pruned"
    assert re.fullmatch(r"[\d.]+ % MFU, below 50 % of the best so far, [\d.]+ % MFU", stopped.detail)


@pytest.mark.parametrize(("budget_bytes", "limit_bytes"), [(None, 4e9), (1e9, 1e9), (9e9, 4e9)])
def test_the_memory_limit_is_the_smaller_of_hardware_and_budget(budget_bytes: int | None, limit_bytes: float) -> None:
    request = sweep_request()
    request = replace(request, trial=replace(request.trial, memory_budget_bytes=budget_bytes))
    assert request.trial_job.cluster.accelerator.memory_bytes == limit_bytes


def test_a_trial_is_predicted_to_fit_by_its_own_memory_budget() -> None:
    request = sweep_request(space=ONE_LAYOUT)
    needed_bytes = ordered(plan_for(request)).prediction.memory.total_bytes
    request = replace(request, trial=replace(request.trial, memory_budget_bytes=int(0.99 * needed_bytes)))
    assert not ordered(plan_for(request)).prediction.fits


def test_an_emulated_trial_is_no_best_and_neither_ends_others_nor_is_ended() -> None:
    space = tiny_space(
        precision=(Precision.BF16, Precision.FP8_EMULATED), micro_batch_size=(1, 2), recompute=(Recompute.NONE,)
    )
    request = sweep_request(space=space, budget=Budget(num_trials=1000, min_gain=0))
    plan, ended = plan_for(request), list[Trial]()
    while isinstance(order := plan.decide(0.0), RunTrial):
        seconds = 1.0 if order.layout.is_emulated else 9.0  # a ninth: below the half that others are ended at
        assert not any(plan.reported(order.number, step_report(step, step_time_s=9.0)) for step in range(4))
        ended.append(trial(order, measurement=measurement(step_time_s=seconds)))
        plan.finished(ended[-1])
    assert isinstance(order, Finish)
    assert {t.layout.is_emulated for t in ended} == {False, True}
    for told in (plan, plan_for(request, ended)):
        counted = told.study.get_trials(states=(OptunaState.COMPLETE,))
        assert {t.params["precision"] for t in counted} == {"bf16"}
        assert len({t.value for t in counted}) == 1


# ---------------------------------------------------------------------- several trials at once
def test_running_trials_are_not_proposed_again_and_only_the_first_tells_the_noise() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=100, min_gain=0)))
    layouts = [ordered(plan).layout for _ in range(6)]
    assert len(set(layouts)) == 6
    plan = plan_for(sweep_request())
    numbers = [ordered(plan).number for _ in range(3)]
    assert [plan.tells_noise(number) for number in numbers] == [True, False, False]


def test_no_gate_or_trial_begins_when_the_budget_is_spent() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=3, min_gain=0)))
    orders = [ordered(plan) for _ in range(3)]
    assert plan.decide(0.0) == Wait()
    for order in orders[:2]:
        plan.finished(trial(order))
        assert plan.decide(0.0) == Wait()
    plan.finished(trial(orders[2]))
    assert stopped(plan).reason == StopReason.TRIAL_BUDGET
    plan = plan_for(fp8_request(budget=Budget(num_trials=1000, min_gain=0, wall_clock_s=100.0)))
    until_gate(plan)
    assert stopped(plan, now=101.0).reason == StopReason.TIME_BUDGET


def test_trials_that_end_in_another_order_are_reported_under_their_numbers() -> None:
    plan = plan_for(sweep_request(budget=Budget(num_trials=100, min_gain=0)))
    orders = [ordered(plan) for _ in range(3)]
    for order in reversed(orders):
        plan.finished(trial(order, measurement=measurement(step_time_s=1.0 + order.number)))
    values = [t.value for t in plan.study.trials]
    assert values == sorted(values, key=lambda value: -(value or 0.0))


def test_all_trials_of_cores_nobody_measured_share_the_peak_that_the_first_one_measured() -> None:
    plan = plan_for(sweep_request())
    assert plan.reference_flop_per_s is None
    run(plan, 1, measurement=measurement(peak_flop_per_s=180e9))
    run(plan, 1, measurement=measurement(peak_flop_per_s=170e9))
    assert plan.reference_flop_per_s == 90e9  # of one of two ranks


# ---------------------------------------------------------------------- convergence gates
def fp8_request(**changes: object) -> SweepRequest:
    return bf16_and_fp8_request(**{"budget": Budget(num_trials=1000, min_gain=0), **changes})


def at(seconds: float) -> Measurement:
    return measurement(step_time_s=seconds, mfu=0.4 / seconds, tokens_per_s=1000.0 / seconds, peak_bytes=(1,))


def until_gate(plan: SweepMachine) -> RunGate:
    """Measure trials, fp8 a third faster, until the plan wants a gate."""
    while isinstance(order := plan.decide(0.0), RunTrial):
        is_fp8 = order.layout.precision == Precision.FP8
        plan.finished(trial(order, measurement=at(0.75 if is_fp8 else 1.0)))
    assert isinstance(order, RunGate), order
    return order


def gated(order: RunGate, outcome: GateOutcome) -> Trial:
    result = GateResult(outcome=outcome, detail="as the test wants", reference=order.reference, tolerance=0.02)
    return replace(order.trial, gate=result)


def test_a_trial_that_is_not_numerically_equivalent_is_gated_once_it_would_rank_first() -> None:
    plan = plan_for(fp8_request())
    order = until_gate(plan)
    assert order.trial.layout == replace(order.reference, precision=Precision.FP8)
    assert order.reference.precision == Precision.BF16
    plan.gate_started(order.trial, 0.0)
    plan.gate_ended(gated(order, GateOutcome.PASSED))
    assert isinstance(plan.decide(0.0), RunTrial)


def test_a_failed_gate_takes_the_rank_while_trials_that_run_go_on() -> None:
    plan = plan_for(fp8_request())
    order = until_gate(plan)
    plan.gate_started(order.trial, 0.0)
    plan.gate_ended(gated(order, GateOutcome.FAILED))
    counted = plan.study.get_trials(states=(OptunaState.COMPLETE,))
    assert order.trial.number not in {t.number for t in counted}
    plan = plan_for(fp8_request())
    order = until_gate(plan)
    plan.gate_started(order.trial, 0.0)
    running = ordered(plan)
    plan.gate_ended(gated(order, GateOutcome.FAILED))
    plan.finished(trial(running, measurement=at(1.0)))
    assert plan.study.trials[running.number].state.is_finished()


def test_without_a_gate_layouts_that_are_not_numerically_equivalent_rank_as_they_are() -> None:
    plan = plan_for(fp8_request(convergence_gate=ConvergenceGate(enabled=False)))
    while isinstance(order := plan.decide(0.0), RunTrial):
        plan.finished(trial(order, measurement=at(1.0)))
    assert isinstance(order, Finish)


def test_the_time_of_a_gate_counts_unless_it_waits_for_devices() -> None:
    plan = plan_for(fp8_request(budget=Budget(num_trials=1000, min_gain=0, accelerator_hours=100.0)))
    order = until_gate(plan)
    plan.gate_started(order.trial, 10.0)
    assert plan.overspent(11.0) is None
    over = plan.overspent(10.0 + 100 * 3600)
    assert over is not None
    assert over.reason == "budget"
    plan = plan_for(fp8_request(budget=Budget(num_trials=1000, min_gain=0)))
    order = until_gate(plan)
    plan.gate_started(order.trial, 10.0)
    plan.gate_waits(order.trial, 20.0, is_waiting=True)
    plan.gate_waits(order.trial, 30.0, is_waiting=True)  # for another reason
    assert plan.gate_hours(order.trial, 500.0) == 10.0 * order.trial.layout.world_size / 3600
    plan.gate_waits(order.trial, 500.0, is_waiting=False)
    assert plan.gate_hours(order.trial, 510.0) == 20.0 * order.trial.layout.world_size / 3600


def test_a_gate_on_an_engine_costs_what_its_jobs_had_of_accelerators() -> None:
    plan = plan_for(fp8_request(budget=Budget(num_trials=1000, min_gain=0, accelerator_hours=100.0)))
    order = until_gate(plan)
    plan.gate_started(order.trial, 10.0)
    waits = EngineJob(engine="slurm", name="gate", handle="4711", submitted_at=10.0)
    plan.gate_placed(order.trial, waits)
    assert plan.overspent(10.0 + 100 * 3600) is None
    plan.gate_placed(order.trial, replace(waits, phase=EngineJobPhase.ENDED, started_at=20.0, ended_at=3620.0))
    assert plan.gate_hours(order.trial, 1e9) == order.trial.layout.world_size
    assert plan.gate_jobs(order.trial)[0].handle == "4711"


def test_a_plan_that_knows_earlier_trials_does_not_begin_with_what_was_slow_in_them() -> None:
    request = sweep_request()
    first = ordered(plan_for(request))
    slow = PastTrial(
        job=request.trial_job,
        layout=first.layout,
        step_time_s=3.0 * first.prediction.step_time.total_s,
        sweep_id="earlier",
        finished_at=0.0,
    )
    assert ordered(SweepMachine(request, [], started_at=0.0, past=[slow])).layout != first.layout
