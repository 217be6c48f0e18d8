from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.comparison import Challenge, Decision
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import Layout
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, RunTrial, SweepRequest
from autotuner.core.trial import FailureKind, Trial
from autotuner.report.verdicts import comparison_in_words
from autotuner.runs.challenge import findings, run_group
from autotuner.runs.instructions import Finish, Wait
from autotuner.search.space.legal import legal_layouts
from autotuner.search.space.moves import neighbours
from autotuner.search.space.trainers import trial_rules
from tests.builders import cpu_cluster, cpu_layout, measurement, present, step_report, tiny_job, trial
from tests.unit.runs.challenged import (
    INCUMBENT,
    OUTSIDE,
    RUN_S,
    TEST,
    Machine,
    Speed,
    bf16_and_fp8_request,
    challenge,
    challenged,
    even,
    faster_than_incumbent,
    nights,
)


def ran(others: float, **environment: str) -> Trial:
    reached = replace(measurement(), foreign_cpu_share=others, environment=environment)
    return trial(cpu_layout(), measurement=reached, finished_at=1.0)


def test_the_load_by_other_processes_is_the_mean_over_recorded_runs() -> None:
    quiet, busy = ran(0.0, torch="2.13", foreign_cpu_share="0.00"), ran(0.5, torch="2.13", foreign_cpu_share="0.50")
    group = present(run_group([quiet, busy, busy, busy]))
    assert group.environment == {"torch": "2.13", "foreign_cpu_share": "0.38"}
    group = present(run_group([ran(0.5, torch="2.13")]))
    assert group.environment == {"torch": "2.13"}


def ended(machine: Machine, request: SweepRequest) -> Finish:
    return present(machine.run(request))


def scattered() -> Speed:
    """Rates so far apart that a dozen of them decide nothing."""
    rates = itertools.cycle((700.0, 1300.0))
    return lambda _: next(rates)


def luckier_at_first() -> Speed:
    """Each layout but the incumbent is fast when it runs for the first time, and as slow as that afterwards."""
    seen = {INCUMBENT}

    def speed(layout: Layout) -> float:
        is_first = layout not in seen
        seen.add(layout)
        return 1300.0 if is_first else 1000.0

    return speed


# ---------------------------------------------------------------------- the incumbent
def test_the_incumbent_runs_alone_and_first_until_it_is_compared_with_its_baseline() -> None:
    request, machine = challenged(challenge(searches=False)), Machine()
    end = ended(machine, request)
    assert {trial.layout for trial in machine.trials} == {INCUMBENT}
    assert TEST.min_runs <= len(machine.trials) <= TEST.max_runs
    against = present(findings(request, machine.trials).against_baseline)
    assert against.decision is Decision.NOT_SLOWER
    assert (end.state, end.reason) == (RunState.COMPLETE, StopReason.COMPARED)
    assert comparison_in_words(against) in end.detail
    machine = Machine()
    machine.run(challenged(challenge(searches=False)))
    assert [trial.repeats for trial in machine.trials] == [None, *[0] * (len(machine.trials) - 1)]
    assert [trial.is_ranked for trial in machine.trials] == [True, *[False] * (len(machine.trials) - 1)]
    request, machine = challenged(challenge(searches=False)), Machine(scattered())
    ended(machine, request)
    assert TEST.min_runs < len(machine.trials) <= TEST.max_runs


def test_an_incumbent_is_found_slower_or_without_a_baseline_runs_the_fewest_times() -> None:
    request, machine = challenged(challenge(baseline=nights(1111.0), searches=False)), Machine()
    ended(machine, request)
    against = present(findings(request, machine.trials).against_baseline)
    assert against.decision is Decision.SLOWER
    assert against.change == pytest.approx(-0.1, abs=0.01)
    request, machine = challenged(challenge(baseline=(), searches=False)), Machine()
    ended(machine, request)
    found = findings(request, machine.trials)
    assert len(machine.trials) == TEST.min_runs
    assert found.against_baseline is None
    assert len(present(found.runs).rates) == TEST.min_runs


def test_nothing_runs_beside_what_is_compared_and_it_is_never_pruned() -> None:
    request, machine = challenged(challenge(), max_parallel_trials=4), Machine()
    plan = machine.plan(request)
    assert isinstance(plan.decide(0.0), RunTrial)
    assert plan.decide(0.0) == Wait()
    machine = Machine()
    plan = machine.plan(challenged(challenge()))
    machine.run(challenged(challenge()), plan, at_most=1)
    order = plan.decide(machine.now)
    assert isinstance(order, RunTrial)
    assert not any(plan.reported(order.number, step_report(step, step_time_s=1e6)) for step in range(4))


def test_an_incumbent_outside_the_space_is_measured_and_one_that_breaks_a_rule_is_not() -> None:
    machine = Machine()
    machine.run(challenged(challenge(incumbent=OUTSIDE)))
    assert machine.trials[0].layout == OUTSIDE
    assert any(trial.layout != OUTSIDE for trial in machine.trials)
    illegal = replace(INCUMBENT, data_parallel_replicate_degree=16)
    request, machine = challenged(challenge(incumbent=illegal)), Machine()
    end = ended(machine, request)
    found = findings(request, machine.trials)
    assert illegal not in {trial.layout for trial in machine.trials}
    assert "cannot run here" in found.death
    assert found.death in end.detail
    assert found.challenger_runs is not None


def test_an_incumbent_that_runs_out_of_memory_is_not_run_again_and_others_are_searched() -> None:
    machine = Machine(lambda layout: FailureKind.OOM if layout == INCUMBENT else 1000.0)
    request = challenged(challenge())
    ended(machine, request)
    found = findings(request, machine.trials)
    assert [trial.layout for trial in machine.trials].count(INCUMBENT) == 1
    assert "oom" in found.death
    assert found.challenger is not None
    assert (found.gain, found.is_better) == (None, False)
    assert len(present(found.challenger_runs).rates) == TEST.min_runs


def test_an_incumbent_that_crashes_is_run_once_more_and_dead_if_that_died_too() -> None:
    machine = Machine(lambda _: FailureKind.CRASH)
    request = challenged(challenge(searches=False))
    end = ended(machine, request)
    assert [trial.repeats for trial in machine.trials] == [None, None]
    assert end.state is RunState.FAILED
    assert "crash" in end.detail
    deaths = [FailureKind.CRASH]
    machine = Machine(lambda _: deaths.pop() if deaths else 1000.0)
    ended(machine, request)
    assert [trial.repeats for trial in machine.trials][:3] == [None, None, 1]
    assert [trial.is_ranked for trial in machine.trials][:3] == [False, True, False]
    assert findings(request, machine.trials).death == ""


# ---------------------------------------------------------------------- the search between
def test_repeats_are_none_of_the_trials_that_the_budget_counts_but_their_hours_are() -> None:
    machine = Machine()
    end = ended(machine, challenged(challenge(), budget=Budget(num_trials=5, min_gain=0)))
    searched = [trial for trial in machine.trials if trial.repeats is None]
    assert len(searched) == 5
    assert len(machine.trials) > 5
    assert end.reason is StopReason.COMPARED
    hours = 2 * 2.5 * RUN_S / 3600  # two and a half runs of two ranks
    request, machine = challenged(challenge(), budget=Budget(accelerator_hours=hours, min_gain=0)), Machine()
    end = ended(machine, request)
    assert end.reason is StopReason.ACCELERATOR_HOURS_BUDGET
    assert len(machine.trials) == 3


def test_time_is_left_for_the_search_and_for_the_turns_after_it() -> None:
    budget = Budget(num_trials=100, min_gain=0, wall_clock_s=10 * RUN_S)
    request, machine = challenged(challenge(), budget=budget), Machine(scattered())
    ended(machine, request)
    before = next(trial.number for trial in machine.trials if trial.layout != INCUMBENT)
    assert before == 5
    budget = Budget(num_trials=100, min_gain=0, wall_clock_s=(TEST.min_runs * 3 + 4) * RUN_S)
    request, machine = challenged(challenge(), budget=budget), Machine(faster_than_incumbent)
    ended(machine, request)
    found = findings(request, machine.trials)
    assert present(found.gain).num_candidate >= TEST.min_runs


def test_neighbours_of_the_incumbent_are_searched_and_without_a_better_one_there_are_no_turns() -> None:
    request = challenged(challenge(), budget=Budget(num_trials=9, min_gain=0))
    machine = Machine(lambda layout: 1000.0 if layout == INCUMBENT else 990.0)
    ended(machine, request)
    beside = [trial.layout in neighbours(INCUMBENT, request.job) for trial in machine.trials if trial.repeats is None]
    assert len(beside) == 9
    assert beside[1::2] == [True] * 4
    machine = Machine(lambda layout: 1000.0 if layout == INCUMBENT else 700.0)
    request = challenged(challenge())
    ended(machine, request)
    assert all(trial.repeats is None for trial in machine.trials if trial.layout != INCUMBENT)
    assert findings(request, machine.trials).challenger is None


# ---------------------------------------------------------------------- by turns
def test_the_best_and_the_incumbent_run_by_turns_until_they_are_distinguished() -> None:
    request, machine = challenged(challenge()), Machine(faster_than_incumbent)
    ended(machine, request)
    found = findings(request, machine.trials)
    turns = [t for t in machine.trials if t.number > max(o.number for o in machine.trials if o.repeats is None)]
    words = "".join("i" if trial.layout == INCUMBENT else "c" for trial in turns)
    assert words == ("ciic" * TEST.max_runs)[: len(words)]
    assert len(words) >= 2 * TEST.min_runs
    assert found.is_better
    assert present(found.gain).change == pytest.approx(0.2, abs=0.02)


def test_luck_of_a_first_run_counts_for_nothing_and_starts_no_search_again() -> None:
    request, machine = challenged(challenge(), budget=Budget(num_trials=30, min_gain=0)), Machine(even, noise=0.03)
    ended(machine, request)
    found = findings(request, machine.trials)
    first = next(trial for trial in machine.trials if trial.layout == found.challenger)
    assert present(first.measurement).tokens_per_s not in present(found.challenger_runs).rates
    assert not found.is_better
    request = challenged(challenge(), budget=Budget(num_trials=12, min_gain=0.05))
    machine = Machine(luckier_at_first())
    ended(machine, request)
    assert not findings(request, machine.trials).is_better
    first_turn = next(trial.number for trial in machine.trials if trial.repeats not in (None, 0))
    assert all(trial.repeats is not None for trial in machine.trials[first_turn:])


def test_a_challenger_that_dies_in_its_turns_is_given_up() -> None:
    seen = set[Layout]()

    def once(layout: Layout) -> float | FailureKind:
        if layout == INCUMBENT:
            return 1000.0
        if layout in seen:
            return FailureKind.CRASH
        seen.add(layout)
        return 1200.0

    request, machine = challenged(challenge()), Machine(once)
    ended(machine, request)
    found = findings(request, machine.trials)
    assert (found.challenger_runs, found.gain, found.is_better) == (None, None, False)


def test_without_an_incumbent_the_best_is_compared_with_the_baseline_by_its_later_runs() -> None:
    of = Challenge(baseline=nights(1200.0), test=TEST)
    request, machine = challenged(of), Machine(faster_than_incumbent)
    end = ended(machine, request)
    found = findings(request, machine.trials)
    assert found.measured is not None
    assert len(present(found.runs).rates) == sum(trial.repeats is not None for trial in machine.trials)
    assert present(found.against_baseline).decision is Decision.NOT_SLOWER
    assert end.reason is StopReason.COMPARED


# ---------------------------------------------------------------------- what changes the mathematics
def fp8_request(of: Challenge) -> SweepRequest:
    return bf16_and_fp8_request(budget=Budget(num_trials=8, min_gain=0), challenge=of)


def bf16_incumbent() -> Layout:
    request = fp8_request(Challenge())
    return legal_layouts(request.job, request.space.with_axes(precision=(Precision.BF16,)), trial_rules(None)).row(0)


def fp8_is_faster(layout: Layout) -> float:
    return 1300.0 if layout.precision is Precision.FP8 else 1000.0


@pytest.mark.parametrize("outcome", [GateOutcome.PASSED, GateOutcome.FAILED, GateOutcome.NOT_GATED])
def test_a_layout_that_is_not_numerically_equivalent_challenges_only_with_a_passed_convergence_gate(
    outcome: GateOutcome,
) -> None:
    request = fp8_request(Challenge(incumbent=bf16_incumbent(), test=TEST))
    machine = Machine(fp8_is_faster, gates=outcome)
    ended(machine, request)
    found = findings(request, machine.trials)
    is_fp8 = found.challenger is not None and found.challenger.precision is Precision.FP8
    assert is_fp8 == (outcome is GateOutcome.PASSED)
    assert found.is_better == is_fp8


def test_the_layout_in_use_needs_no_convergence_gate_nor_one_that_trains_the_same_function() -> None:
    incumbent = replace(bf16_incumbent(), precision=Precision.FP8)
    request = fp8_request(Challenge(incumbent=incumbent, test=TEST))
    machine = Machine(
        lambda layout: 1000.0 if layout == incumbent else fp8_is_faster(layout), gates=GateOutcome.NOT_GATED
    )
    ended(machine, request)
    assert machine.trials[0].layout == incumbent
    assert machine.trials[0].gate is None
    assert findings(request, machine.trials).is_better


# ---------------------------------------------------------------------- taken up again
@pytest.mark.oracle  # seconds of a sampler's work
@pytest.mark.parametrize("of", [challenge(), Challenge(baseline=nights(1200.0), test=TEST)], ids=["incumbent", "best"])
def test_a_worker_that_takes_over_after_any_trial_goes_on_where_the_last_one_was(of: Challenge) -> None:
    request, whole = challenged(of), Machine(faster_than_incumbent)
    end = ended(whole, request)
    for num in range(0, len(whole.trials), 2):
        again = Machine(faster_than_incumbent)
        again.trials, again.now = list(whole.trials[:num]), num * RUN_S
        assert ended(again, request) == end
        assert [(t.layout, t.repeats) for t in again.trials] == [(t.layout, t.repeats) for t in whole.trials]


@pytest.mark.oracle  # seconds of a sampler's work
def test_a_run_that_was_cut_short_in_any_phase_is_run_again_as_the_same_repeat() -> None:
    request, whole = challenged(challenge()), Machine(faster_than_incumbent)
    ended(whole, request)
    for num, cut in list(enumerate(whole.trials))[::2]:
        again = Machine(faster_than_incumbent)
        again.trials, again.now = list(whole.trials[:num]), num * RUN_S
        order = again.plan(request).decide(again.now)
        assert isinstance(order, RunTrial)
        queued = again.interrupted(order)
        again.trials.append(queued)
        retried = again.plan(request).decide(again.now)
        assert isinstance(retried, RunTrial)
        assert (retried.number, retried.layout, retried.repeats) == (cut.number, cut.layout, cut.repeats)
        assert retried.stored == queued


# ---------------------------------------------------------------------- refusals
def test_proxy_trials_are_not_compared() -> None:
    with pytest.raises(InvalidInput, match=r"trial_cluster .*cannot be used in a comparison with an incumbent"):
        challenged(challenge(), job=tiny_job(4), trial_cluster=cpu_cluster(2))
