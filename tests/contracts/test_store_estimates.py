"""Store contract: trials on fewer ranks than their job has, and what is estimated of them."""

from __future__ import annotations

import pytest

from autotuner.core.errors import Conflict, LeaseLost
from autotuner.core.sweep import Sweep
from autotuner.core.trial import RankedTime, Trial, TrialState
from autotuner.store.sql import Store
from tests.builders import cpu_cluster, cpu_layout, estimate, failure, measurement, prediction, small_trial, tiny_job
from tests.contracts.acts import OTHER, claim, create, lease_of, measure

LAYOUT = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)


def held_for_eight(store: Store) -> Sweep:
    """A sweep for eight ranks, tried on two."""
    create(store, job=tiny_job(8), trial_cluster=cpu_cluster(2))
    return claim(store)


def started(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    trial = store.add_trial(
        sweep.id,
        lease=lease_of(store, sweep.id),
        number=number,
        layout=LAYOUT,
        prediction=prediction(),
        scaled=small_trial(),
    )
    return store.start_trial(trial.id, lease=lease_of(store, trial.id), now=20.0)


def measured(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    trial = started(store, sweep, number)
    return store.finish_trial(trial.id, measurement(mfu=0.9), lease=lease_of(store, trial.id), now=21.0)


def test_a_trial_keeps_what_runs_in_the_place_of_its_layout(store: Store) -> None:
    trial = started(store, held_for_eight(store))
    assert store.get_trial(trial.id).scaled == small_trial()
    assert store.get_trial(trial.id).ran == small_trial().layout


def test_a_small_trial_has_no_rank_before_anything_is_estimated_of_it(store: Store) -> None:
    sweep = held_for_eight(store)
    trial = measured(store, sweep)
    assert (trial.state, trial.is_ranked) == (TrialState.COMPLETE, False)
    assert store.ranking(sweep.id) == ([], 0)
    assert store.overview(sweep.id, now=30.0).best_mfu is None


def test_trials_are_ranked_by_what_is_estimated_of_them_and_keep_what_they_measured(store: Store) -> None:
    sweep = held_for_eight(store)
    slow, fast = measured(store, sweep, 0), measured(store, sweep, 1)
    told = {slow.id: estimate(0.8, 0.15), fast.id: estimate(0.6, 0.2)}
    estimated = store.set_estimates(sweep.id, told, lease=lease_of(store, sweep.id), now=22.0)
    assert [trial.estimate for trial in estimated] == list(told.values())
    ranked, total = store.ranking(sweep.id)
    assert ([trial.id for trial in ranked], total) == ([fast.id, slow.id], 2)
    assert [trial.measurement for trial in ranked] == [measurement(mfu=0.9)] * 2
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
    store.set_estimates(
        sweep.id,
        {first.id: estimate(0.5, 0.3), second.id: estimate(0.6, 0.2)},
        lease=lease_of(store, sweep.id),
        now=22.0,
    )
    store.set_estimates(sweep.id, {first.id: estimate(0.7, 0.1)}, lease=lease_of(store, sweep.id), now=23.0)
    assert [trial.id for trial in store.ranking(sweep.id)[0]] == [second.id, first.id]
    assert store.get_trial(first.id).estimate == estimate(0.7, 0.1)


def test_estimates_stand_beside_measurements_in_the_ranking_of_all_sweeps(store: Store) -> None:
    sweep = held_for_eight(store)
    small = measured(store, sweep)
    store.set_estimates(sweep.id, {small.id: estimate(0.6, 0.2)}, lease=lease_of(store, sweep.id), now=22.0)
    create(store)
    other = claim(store)
    better, worse = measure(store, other, 0, mfu=0.3), measure(store, other, 1, mfu=0.1)
    assert [trial.id for trial in store.ranking()[0]] == [better.id, small.id, worse.id]


def test_accelerator_hours_count_the_ranks_that_ran(store: Store) -> None:
    sweep = held_for_eight(store)
    measured(store, sweep)
    assert store.overview(sweep.id, now=30.0).accelerator_hours == pytest.approx(2 * 1.0 / 3600)


def test_only_small_trials_that_were_measured_are_estimated(store: Store) -> None:
    sweep = held_for_eight(store)
    running, died = started(store, sweep, 0), started(store, sweep, 1)
    store.finish_trial(died.id, failure(), lease=lease_of(store, died.id), now=21.0)
    whole = store.add_trial(
        sweep.id, lease=lease_of(store, sweep.id), number=2, layout=cpu_layout(), prediction=prediction()
    )
    store.start_trial(whole.id, lease=lease_of(store, whole.id), now=20.0)
    store.finish_trial(whole.id, measurement(), lease=lease_of(store, whole.id), now=21.0)
    for trial in (running, died, whole):
        with pytest.raises(Conflict):
            store.set_estimates(sweep.id, {trial.id: estimate()}, lease=lease_of(store, sweep.id), now=22.0)


def test_estimates_are_written_by_whoever_holds_the_sweep_and_told_once(store: Store) -> None:
    sweep = held_for_eight(store)
    trial = measured(store, sweep)
    with pytest.raises(LeaseLost):
        store.set_estimates(sweep.id, {trial.id: estimate()}, lease=lease_of(store, sweep.id, OTHER), now=22.0)
    store.set_estimates(sweep.id, {trial.id: estimate()}, lease=lease_of(store, sweep.id), now=22.0)
    (told,) = [event for event in store.events(sweep.id) if event.kind == "sweep.estimated"]
    assert told.data == {"step_time_s": {trial.id: 0.625}}
    (finished,) = [event for event in store.events(sweep.id) if event.kind == "trial.finished"]
    assert (finished.data["mfu"], finished.data["step_time_s"]) == (None, None)
