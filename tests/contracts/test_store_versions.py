"""Store contract: the version of a sweep's trials changes with what they tell, and not with their steps."""

from __future__ import annotations

from autotuner.core.trial import Stopped, TrialsVersion
from autotuner.store.sql import Store
from tests.builders import engine_job, estimate, measurement, proxy_trial
from tests.contracts.acts import add, claim, create, end, gate_result, held_sweep, judge, lease_of, measure, start, step


def test_every_change_of_a_trial_is_another_version(store: Store) -> None:
    sweep = held_sweep(store)
    seen = [store.trials_version(sweep.id)]

    def look() -> None:
        seen.append(store.trials_version(sweep.id))

    first = start(store, sweep, 0)
    look()
    store.set_job(first.id, engine_job(), lease=lease_of(store, first.id), now=11.0)
    look()
    end(store, first, measurement())
    look()
    judge(store, first, gate_result())
    look()
    end(store, start(store, sweep, 1), Stopped(reason="pruned"))
    look()
    add(store, sweep, 2)
    look()
    assert len(set(seen)) == len(seen)


def test_estimates_are_another_version(store: Store) -> None:
    sweep = held_sweep(store)
    small = measure(store, sweep, 0, mfu=0.3, scaled=proxy_trial())
    before = store.trials_version(sweep.id)
    store.set_estimates(sweep.id, {small.id: estimate()}, lease=lease_of(store, sweep.id), now=14.0)
    assert store.trials_version(sweep.id) != before


def test_steps_are_no_other_version(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep, 0)
    before = store.trials_version(sweep.id)
    for number in range(3):
        step(store, trial, number)
    assert store.trials_version(sweep.id) == before


def test_each_sweep_has_a_version_of_its_own(store: Store) -> None:
    first = held_sweep(store)
    create(store)
    second = claim(store)
    before = store.trials_version(first.id)
    measure(store, second, 0, mfu=0.3)
    assert store.trials_version(first.id) == before
    assert before == TrialsVersion(last_event=before.last_event, num_trials=0)
