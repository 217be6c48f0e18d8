"""Store contract: what sweeps have reached: overviews, rankings and estimates of full sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import event

from autotuner.core.choices import Precision
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import Conflict, LeaseLost, NotFound
from autotuner.core.layout import Layout
from autotuner.core.measurement import Power, ResourceCost
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import Budget, Sweep
from autotuner.core.trial import RankedTime, Stopped, Trial, TrialState, Waiting
from autotuner.store.engine import make_engine
from autotuner.store.options import Page, TrialFilter
from autotuner.store.sql import Store
from tests.builders import big_job, cpu_cluster, cpu_layout, estimate, failure, measurement, proxy_trial, tiny_job
from tests.contracts.acts import (
    OTHER,
    OWNER,
    add,
    claim,
    create,
    end,
    finish,
    gate_result,
    held_sweep,
    judge,
    lease_of,
    measure,
    release_sweep,
    start,
    step,
)

# ---------------------------------------------------------------- overviews
TOKENS_PER_S = Objective(metric=Metric.TOKENS_PER_S)


@pytest.fixture
def counted(database_url: str) -> Iterator[tuple[Store, list[str]]]:
    """A store, and the statements that it sent."""
    engine, sent = make_engine(database_url), list[str]()
    event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
    store = Store(engine)
    yield store, sent
    store.close()


def busy_sweep(store: Store, *, name: str = "") -> Sweep:
    """One of each end, one running since 11 on two ranks, one queued, and a convergence gate."""
    create(store, name=name)
    sweep = claim(store)
    measure(store, sweep, 0, mfu=0.2)
    best = measure(store, sweep, 1, mfu=0.4)
    end(store, start(store, sweep, 2), failure())
    end(store, start(store, sweep, 3), Stopped(reason="pruned"))
    start(store, sweep, 4, layout=cpu_layout(tensor_parallel_degree=2))
    add(store, sweep, 5)
    judge(store, best, gate_result(accelerator_hours=0.5))
    return store.get_sweep(sweep.id)


def test_an_overview_says_what_was_asked_and_where_the_sweep_stands(store: Store) -> None:
    sweep = finish(store, held_sweep(store, name="nightly \0", budget=Budget(num_trials=7), objective=TOKENS_PER_S))
    found = store.overview(sweep.id, now=30.0)
    assert (found.id, found.name, found.model, found.cluster) == (sweep.id, "nightly \\0", "tiny", "cpu:2")
    assert (found.state, found.stop_reason, found.stop_detail) == (sweep.state, sweep.stop_reason, sweep.stop_detail)
    assert (found.created_at, found.started_at, found.finished_at) == (1.0, 10.0, 20.0)
    assert (found.budget, found.objective, found.cancel_requested) == (Budget(num_trials=7), TOKENS_PER_S, False)


def test_an_overview_counts_the_trials_of_each_state(store: Store) -> None:
    found = store.overview(busy_sweep(store).id, now=20.0)
    assert found.num_trials == {
        TrialState.COMPLETE: 2,
        TrialState.FAILED: 1,
        TrialState.PRUNED: 1,
        TrialState.RUNNING: 1,
        TrialState.QUEUED: 1,
    }


def test_a_sweep_whose_lease_has_run_out_waits_for_a_worker(store: Store) -> None:
    sweep = held_sweep(store)  # at 10 for 30 s
    assert store.overview(sweep.id, now=39.0).waiting is None
    reason = "waits for a worker: its worker gives no sign of life, and the next free worker continues it"
    assert store.overview(sweep.id, now=45.0).waiting == Waiting(reason=reason, since=40.0)
    release_sweep(store, sweep.id, owner=OWNER, now=50.0)
    given_back = store.overview(sweep.id, now=51.0).waiting
    assert given_back is not None
    assert "given it up" in given_back.reason
    claim(store, now=60.0)
    finish(store, sweep, now=70.0)
    assert store.overview(sweep.id, now=500.0).waiting is None


def test_an_overview_sums_the_accelerator_hours_of_its_trials(store: Store) -> None:
    sweep = busy_sweep(store)
    by_trial = sum(store.get_trial(trial.id).accelerator_hours(20.0) for trial in store.list_trials(sweep.id)[0])
    found = store.overview(sweep.id, now=20.0).progress.accelerator_hours
    assert by_trial == pytest.approx(4 * 1 / 3600 + 2 * 9 / 3600 + 0.5)
    assert found == pytest.approx(by_trial, rel=1e-12)  # the same sums in another order


def test_an_overview_names_the_value_and_mfu_of_the_trial_ranked_first(store: Store) -> None:
    sweep = held_sweep(store, objective=TOKENS_PER_S)
    for number, (tokens_per_s, mfu) in enumerate([(900.0, 0.3), (1000.0, 0.2)]):
        end(store, start(store, sweep, number), measurement(tokens_per_s=tokens_per_s, mfu=mfu))
    found = store.overview(sweep.id, now=20.0)
    assert (found.best_value, found.best_mfu) == (1000.0, 0.2)


def test_an_overview_says_how_well_its_best_trial_is_known_and_what_it_reached(store: Store) -> None:
    sweep = held_sweep(store)
    known = measurement(mfu=0.4, tokens_per_s=800.0, step_time_s=2.0, step_time_interval_s=0.1)
    best = end(store, start(store, sweep), known)
    found = store.overview(sweep.id, now=20.0)
    assert (found.best_trial_id, found.best_tokens_per_s, found.best_relative_error) == (best.id, 800.0, 0.05)


def test_an_overview_shows_how_the_best_value_grew(store: Store) -> None:
    sweep = held_sweep(store)
    for number, mfu in enumerate([0.2, 0.1, 0.2, 0.3, 0.25, 0.4]):
        measure(store, sweep, number, mfu=mfu)
    grew = store.overview(sweep.id, now=20.0).best_so_far
    assert [(best.number, best.value) for best in grew] == [(0, 0.2), (3, 0.3), (5, 0.4)]


def test_a_trial_whose_gate_failed_is_not_the_best_of_an_overview(store: Store) -> None:
    sweep = held_sweep(store)
    worse, better = measure(store, sweep, 0, mfu=0.2), measure(store, sweep, 1, mfu=0.4)
    judge(store, better, gate_result(GateOutcome.FAILED))
    assert worse.measurement is not None
    assert store.overview(sweep.id, now=20.0).best_mfu == worse.measurement.mfu


def test_an_overview_of_a_sweep_without_trials_is_empty(store: Store) -> None:
    found = store.overview(create(store).id, now=20.0)
    assert (found.num_trials, found.progress.accelerator_hours) == ({}, 0.0)
    assert (found.best_value, found.best_mfu) == (None, None)


def test_an_unknown_sweep_has_no_overview(store: Store) -> None:
    with pytest.raises(NotFound, match="sw-missing"):
        store.overview("sw-missing", now=1.0)


def test_a_listed_overview_is_the_one_that_is_read_alone(store: Store) -> None:
    sweeps = [busy_sweep(store, name=name) for name in ("first", "second")]
    listed, _ = store.list_overviews(now=20.0)
    assert {found.id: found for found in listed} == {sweep.id: store.overview(sweep.id, now=20.0) for sweep in sweeps}


def test_as_many_queries_list_many_sweeps_as_one(counted: tuple[Store, list[str]]) -> None:
    store, sent = counted
    busy_sweep(store)
    sent.clear()
    store.list_overviews(now=20.0)
    for_one = len(sent)
    for _ in range(3):
        busy_sweep(store)
    sent.clear()
    assert store.list_overviews(now=20.0)[1] == 4
    assert len(sent) == for_one


def test_an_overview_names_the_engine_that_runs_the_trials(store: Store) -> None:
    elsewhere = create(store, job=tiny_job(cluster=cpu_cluster(engine="slurm")))
    assert store.overview(elsewhere.id, now=20.0).engine == "slurm"
    assert store.overview(create(store).id, now=20.0).engine == "local"


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
        end(store, start(store, sweep, number), replace(measurement(mfu=mfu), resource_cost=drawing(watts)))
        for number, (mfu, watts) in enumerate(((0.4, 5600.0), (0.38, 2800.0)))
    )
    assert store.ranking(sweep.id) == ([replace(frugal, steps=()), replace(faster, steps=())], 2)
    assert store.ranking()[0] == [replace(faster, steps=()), replace(frugal, steps=())]
    assert store.overview(sweep.id, now=13.0).objective == objective


def drawing(watts: float) -> ResourceCost:
    power = Power(accelerators_w=watts, hosts_w=0.0, network_w=0.0, building_w=0.0)
    return ResourceCost(power=power, price_per_hour=0.0, co2_kg_per_hour=0.0, complexity=0.0)


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


def test_ranked_times_are_reported_in_the_order_of_the_ranking(store: Store) -> None:
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


def test_a_trial_that_repeats_another_has_no_rank_and_refers_to_the_other(store: Store) -> None:
    sweep = held_sweep(store)
    first = measure(store, sweep, 0, mfu=0.3)
    for number, step_time_s in ((1, 0.6), (2, 0.7)):
        again = start(store, sweep, number, layout=first.layout, repeats=0)
        ended = end(store, again, measurement(mfu=0.9, step_time_s=step_time_s))
        assert (ended.repeats, ended.is_ranked) == (0, False)
    assert store.ranking(sweep.id) == store.ranking() == ([first], 1)
    assert [time.repeated_s for time in store.ranked_times(sweep.id)] == [(0.6, 0.7)]
    assert store.overview(sweep.id, now=30.0).num_repeats == 2


# ---------------------------------------------------------------------- convergence gates
@pytest.mark.parametrize("outcome", GateOutcome)
def test_a_trial_keeps_what_its_convergence_gate_found_and_loses_its_rank_where_it_failed(
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


# ---------------------------------------------------------------- estimates
LAYOUT = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)


def held_for_eight(store: Store) -> Sweep:
    """A sweep for eight ranks, tried on two."""
    create(store, job=tiny_job(8), trial_cluster=cpu_cluster(2))
    return claim(store)


def started(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    return start(store, sweep, number, layout=LAYOUT, proxy=proxy_trial())


def measured(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    return end(store, started(store, sweep, number), measurement(mfu=0.9))


def estimates(store: Store, sweep: Sweep, told: dict[str, TrialEstimate], *, owner: str = OWNER) -> Sequence[Trial]:
    return store.set_estimates(sweep.id, told, lease=lease_of(store, sweep.id, owner), now=22.0)


def test_a_trial_keeps_what_runs_in_the_place_of_its_layout(store: Store) -> None:
    trial = started(store, held_for_eight(store))
    assert store.get_trial(trial.id).proxy == proxy_trial()
    assert store.get_trial(trial.id).ran == proxy_trial().layout


def test_a_proxy_trial_has_no_rank_before_anything_is_estimated_of_it(store: Store) -> None:
    sweep = held_for_eight(store)
    trial = measured(store, sweep)
    assert (trial.state, trial.is_ranked) == (TrialState.COMPLETE, False)
    assert store.ranking(sweep.id) == ([], 0)
    assert store.overview(sweep.id, now=30.0).best_mfu is None


def test_trials_are_ranked_by_what_is_estimated_of_them_and_keep_what_they_measured(store: Store) -> None:
    sweep = held_for_eight(store)
    slow, fast = measured(store, sweep, 0), measured(store, sweep, 1)
    told = {slow.id: estimate(0.8, 0.15), fast.id: estimate(0.6, 0.2)}
    assert [trial.estimate for trial in estimates(store, sweep, told)] == list(told.values())
    ranked, total = store.ranking(sweep.id)
    assert ([trial.id for trial in ranked], total) == ([fast.id, slow.id], 2)
    assert [(trial.measurement, trial.ran_measurement) for trial in ranked] == [(None, measurement(mfu=0.9))] * 2
    assert store.ranked_times(sweep.id)[0] == RankedTime(
        trial_id=fast.id,
        step_time_s=0.6,
        step_time_interval_s=estimate(0.6).step_time_error_s,
        noise_floor=None,
    )
    overview = store.overview(sweep.id, now=30.0)
    assert (overview.trial_cluster, overview.best_value, overview.best_mfu) == ("cpu:2", 0.2, 0.2)


def test_a_newer_estimate_takes_the_place_of_the_last(store: Store) -> None:
    sweep = held_for_eight(store)
    first, second = measured(store, sweep, 0), measured(store, sweep, 1)
    estimates(store, sweep, {first.id: estimate(0.5, 0.3), second.id: estimate(0.6, 0.2)})
    estimates(store, sweep, {first.id: estimate(0.7, 0.1)})
    assert [trial.id for trial in store.ranking(sweep.id)[0]] == [second.id, first.id]
    assert store.get_trial(first.id).estimate == estimate(0.7, 0.1)


def test_estimates_stand_beside_measurements_in_the_ranking_of_all_sweeps(store: Store) -> None:
    sweep = held_for_eight(store)
    small = measured(store, sweep)
    estimates(store, sweep, {small.id: estimate(0.6, 0.2)})
    create(store)
    other = claim(store)
    better, worse = measure(store, other, 0, mfu=0.3), measure(store, other, 1, mfu=0.1)
    assert [trial.id for trial in store.ranking()[0]] == [better.id, small.id, worse.id]


def test_accelerator_hours_count_the_ranks_that_ran(store: Store) -> None:
    sweep = held_for_eight(store)
    measured(store, sweep)
    assert store.overview(sweep.id, now=30.0).progress.accelerator_hours == pytest.approx(2 * 1.0 / 3600)


def test_only_proxy_trials_that_were_measured_are_estimated(store: Store) -> None:
    sweep = held_for_eight(store)
    running, died = started(store, sweep, 0), started(store, sweep, 1)
    end(store, died, failure())
    whole = measure(store, sweep, 2, mfu=0.3)
    for trial in (running, died, whole):
        with pytest.raises(Conflict):
            estimates(store, sweep, {trial.id: estimate()})


def test_estimates_are_written_by_the_holder_of_the_sweep_with_one_event(store: Store) -> None:
    sweep = held_for_eight(store)
    trial = measured(store, sweep)
    with pytest.raises(LeaseLost):
        estimates(store, sweep, {trial.id: estimate()}, owner=OTHER)
    estimates(store, sweep, {trial.id: estimate()})
    (told,) = [event for event in store.events(sweep.id) if event.kind == "sweep.estimated"]
    assert told.data == {"step_time_s": {trial.id: 0.625}}
    (finished,) = [event for event in store.events(sweep.id) if event.kind == "trial.finished"]
    assert (finished.data["mfu"], finished.data["step_time_s"]) == (None, None)
