"""Store contract: trials on fewer ranks than their job has, and what is estimated of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotuner.core.errors import Conflict, LeaseLost
from autotuner.core.prediction import TrialEstimate
from autotuner.core.sweep import Sweep
from autotuner.core.trial import RankedTime, Trial, TrialState
from autotuner.store.sql import Store
from tests.builders import cpu_cluster, cpu_layout, estimate, failure, measurement, proxy_trial, tiny_job
from tests.contracts.acts import OTHER, OWNER, claim, create, end, lease_of, measure, start

LAYOUT = cpu_layout(tensor_parallel_degree=2, data_parallel_replicate_degree=4)


def held_for_eight(store: Store) -> Sweep:
    """A sweep for eight ranks, tried on two."""
    create(store, job=tiny_job(8), trial_cluster=cpu_cluster(2))
    return claim(store)


def started(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    return start(store, sweep, number, layout=LAYOUT, scaled=proxy_trial())


def measured(store: Store, sweep: Sweep, number: int = 0) -> Trial:
    return end(store, started(store, sweep, number), measurement(mfu=0.9))


def estimates(store: Store, sweep: Sweep, told: dict[str, TrialEstimate], *, owner: str = OWNER) -> Sequence[Trial]:
    return store.set_estimates(sweep.id, told, lease=lease_of(store, sweep.id, owner), now=22.0)


def test_a_trial_keeps_what_runs_in_the_place_of_its_layout(store: Store) -> None:
    trial = started(store, held_for_eight(store))
    assert store.get_trial(trial.id).scaled == proxy_trial()
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


def test_estimates_are_written_by_whoever_holds_the_sweep_and_told_once(store: Store) -> None:
    sweep = held_for_eight(store)
    trial = measured(store, sweep)
    with pytest.raises(LeaseLost):
        estimates(store, sweep, {trial.id: estimate()}, owner=OTHER)
    estimates(store, sweep, {trial.id: estimate()})
    (told,) = [event for event in store.events(sweep.id) if event.kind == "sweep.estimated"]
    assert told.data == {"step_time_s": {trial.id: 0.625}}
    (finished,) = [event for event in store.events(sweep.id) if event.kind == "trial.finished"]
    assert (finished.data["mfu"], finished.data["step_time_s"]) == (None, None)
