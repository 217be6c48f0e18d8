"""Store contract: which trials have a rank, in which order, and what loss gates change of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.choices import Precision
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import Conflict
from autotuner.core.layout import Layout
from autotuner.core.measurement import Footprint, Power
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.trial import RankedTime, Stopped, TrialState
from autotuner.store.options import Page, TrialFilter
from autotuner.store.sql import Store
from tests.builders import big_job, cpu_layout, failure, measurement
from tests.contracts.acts import claim, create, end, gate_result, held_sweep, judge, lease_of, measure, start, step


# ---------------------------------------------------------------------- order
def test_the_ranking_is_of_complete_trials_by_measured_mfu(store: Store) -> None:
    sweep = held_sweep(store)
    low, high, middle = (measure(store, sweep, number, mfu=mfu) for number, mfu in enumerate((0.2, 0.4, 0.3)))
    end(store, start(store, sweep, 3), failure())
    end(store, start(store, sweep, 4), Stopped(reason="pruned"))
    start(store, sweep, 5)
    assert store.ranking(sweep.id) == ([high, middle, low], 3)


def test_a_profile_ranks_by_what_layouts_take_beside_time(store: Store) -> None:
    profile = (Weight(metric=Metric.MFU, weight=1), Weight(metric=Metric.TOKENS_PER_JOULE, weight=3))
    objective = Objective(profile=profile, front=(Metric.MFU, Metric.SIMPLICITY))
    sweep = held_sweep(store, job=big_job(1), objective=objective)
    faster, frugal = (
        end(store, start(store, sweep, number), replace(measurement(mfu=mfu), footprint=drawing(watts)))
        for number, (mfu, watts) in enumerate(((0.4, 5600.0), (0.38, 2800.0)))
    )
    assert store.ranking(sweep.id) == ([replace(frugal, steps=()), replace(faster, steps=())], 2)
    assert store.ranking()[0] == [replace(faster, steps=()), replace(frugal, steps=())]
    assert store.overview(sweep.id, now=13.0).objective == objective


def drawing(watts: float) -> Footprint:
    power = Power(accelerators_w=watts, hosts_w=0.0, network_w=0.0, building_w=0.0)
    return Footprint(power=power, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=0.0)


def test_ranked_trials_come_without_steps(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    step(store, trial)
    complete = end(store, trial, measurement())
    assert store.ranking(sweep.id) == ([replace(complete, steps=())], 1)


def test_equal_mfu_ranks_by_id(store: Store) -> None:
    sweep = held_sweep(store)
    later, earlier = (measure(store, sweep, number, mfu=0.25) for number in (1, 0))
    assert store.ranking(sweep.id) == ([earlier, later], 2)


def test_the_ranking_of_all_sweeps_mixes_them(store: Store) -> None:
    first = held_sweep(store)
    low, high = measure(store, first, 0, mfu=0.2), measure(store, first, 1, mfu=0.4)
    create(store)
    second = claim(store)
    middle = measure(store, second, 0, mfu=0.3)
    assert store.ranking() == ([high, middle, low], 3)
    assert store.ranking(second.id) == ([middle], 1)


def test_the_ranking_can_be_filtered_and_paged(store: Store) -> None:
    sweep = held_sweep(store)
    tensor: Layout = cpu_layout(tensor_parallel_degree=2)
    measure(store, sweep, 0, mfu=0.9)
    _, second, _ = (measure(store, sweep, number, mfu=0.5 - number / 10, layout=tensor) for number in (1, 2, 3))
    where = TrialFilter(tensor_parallel_degree=2)
    assert store.ranking(sweep.id, where=where, page=Page(limit=1, offset=1)) == ([second], 3)


def test_an_emulated_trial_is_kept_and_has_no_rank(store: Store) -> None:
    sweep = held_sweep(store)
    emulated = measure(store, sweep, 0, mfu=0.9, layout=cpu_layout(precision=Precision.FP8_EMULATED))
    real = measure(store, sweep, 1, mfu=0.2)
    assert store.ranking(sweep.id) == store.ranking() == ([real], 1)
    kept = store.get_trial(emulated.id)
    assert (kept.state, kept.measurement) == (TrialState.COMPLETE, emulated.measurement)


def test_a_sweep_is_ranked_by_its_objective_and_all_sweeps_by_mfu(store: Store) -> None:
    sweep = held_sweep(store, objective=Objective(metric=Metric.TOKENS_PER_S))
    fast, efficient = (
        end(store, start(store, sweep, number), measurement(tokens_per_s=tokens_per_s, mfu=mfu))
        for number, (tokens_per_s, mfu) in enumerate([(1000.0, 0.2), (900.0, 0.3)])
    )
    assert store.ranking(sweep.id) == ([fast, efficient], 2)
    assert store.ranking() == ([efficient, fast], 2)


def test_ranked_times_are_told_in_the_order_of_the_ranking(store: Store) -> None:
    sweep = held_sweep(store)
    outcomes = [
        measurement(mfu=0.2, step_time_s=1.0),
        measurement(mfu=0.4, step_time_s=0.5, step_time_interval_s=0.01, noise_floor=0.02),
    ]
    slow, fast = (end(store, start(store, sweep, number), outcome) for number, outcome in enumerate(outcomes))
    measure(store, sweep, 2, mfu=0.9, layout=cpu_layout(precision=Precision.FP8_EMULATED))
    assert store.ranked_times(sweep.id) == [
        RankedTime(trial_id=fast.id, step_time_s=0.5, step_time_interval_s=0.01, noise_floor=0.02),
        RankedTime(
            trial_id=slow.id, step_time_s=1.0, step_time_interval_s=outcomes[0].step_time_error_s, noise_floor=None
        ),
    ]


def test_a_trial_that_repeats_another_has_no_rank_and_tells_how_that_one_is_known(store: Store) -> None:
    sweep = held_sweep(store)
    first = measure(store, sweep, 0, mfu=0.3)
    for number, step_time_s in ((1, 0.6), (2, 0.7)):
        again = start(store, sweep, number, layout=first.layout, repeats=0)
        ended = end(store, again, measurement(mfu=0.9, step_time_s=step_time_s))
        assert (ended.repeats, ended.is_ranked) == (0, False)
    assert store.ranking(sweep.id) == store.ranking() == ([first], 1)
    assert [time.repeated_s for time in store.ranked_times(sweep.id)] == [(0.6, 0.7)]
    assert store.overview(sweep.id, now=30.0).num_repeats == 2


# ---------------------------------------------------------------------- loss gates
@pytest.mark.parametrize("outcome", GateOutcome)
def test_a_trial_keeps_what_its_loss_gate_found_and_loses_its_rank_where_it_failed(
    store: Store, outcome: GateOutcome
) -> None:
    sweep = held_sweep(store)
    first, second = measure(store, sweep, 0, mfu=0.4), measure(store, sweep, 1, mfu=0.3)
    gated = judge(store, first, gate_result(outcome))
    assert gated.gate is not None
    assert gated.gate.outcome is outcome
    ranked = [second] if outcome is GateOutcome.FAILED else [gated, second]
    assert [trial.id for trial in store.ranking(sweep.id)[0]] == [trial.id for trial in ranked]
    assert [found.trial_id for found in store.ranked_times(sweep.id)] == [trial.id for trial in ranked]
    assert [trial.id for trial in store.ranking()[0]] == [trial.id for trial in ranked]


def test_a_gated_trial_reads_back_with_both_curves_wherever_it_is_read(store: Store) -> None:
    sweep = held_sweep(store)
    trial = measure(store, sweep, 0, mfu=0.4)
    result = gate_result(candidate_losses=((5.5, 5.4), (5.6, 5.5)), excess=0.01, noise=0.002, accelerator_hours=0.1)
    gated = judge(store, trial, result)
    assert gated == replace(trial, gate=result)
    assert store.get_trial(trial.id) == gated
    assert store.list_trials(sweep.id) == store.ranking(sweep.id) == ([gated], 1)


def test_a_loss_that_is_no_number_can_be_stored_of_a_gate(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.4)
    judge(store, trial, gate_result(GateOutcome.FAILED))
    gate = store.get_trial(trial.id).gate
    assert gate is not None
    assert str(gate.candidate_losses) == "((5.5, 5.4), (5.6, nan))"


def test_a_trial_is_gated_once(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.4)
    gated = judge(store, trial, gate_result())
    with pytest.raises(Conflict, match="passed"):
        store.add_gate(trial.id, gate_result(GateOutcome.FAILED), lease=lease_of(store, trial.id), now=14.0)
    assert store.ranking(trial.sweep_id)[1] == 1
    assert str(store.get_trial(trial.id)) == str(gated)  # as text: a loss that is no number equals nothing


def test_only_a_complete_trial_is_gated(store: Store) -> None:
    trial = start(store, held_sweep(store))
    with pytest.raises(Conflict, match="running"):
        judge(store, trial, gate_result())
    assert store.get_trial(trial.id).gate is None
