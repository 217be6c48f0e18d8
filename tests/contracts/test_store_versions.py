"""Store contract: the version of a sweep's trials changes with what they tell, and not with their steps."""

from __future__ import annotations

from autotuner.core.trial import Stopped, TrialsVersion
from autotuner.store.sql import Store
from tests.builders import cpu_layout, engine_job, estimate, measurement, prediction, small_trial, step_report
from tests.contracts.acts import claim, create, end, gate_result, held_sweep, lease_of, measure, start


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
    store.add_gate(first.id, gate_result(), lease=lease_of(store, first.id), now=13.0)
    look()
    end(store, start(store, sweep, 1), Stopped(reason="pruned"))
    look()
    store.add_trial(sweep.id, lease=lease_of(store, sweep.id), number=2, layout=cpu_layout(), prediction=prediction())
    look()
    assert len(set(seen)) == len(seen)


def test_estimates_are_another_version(store: Store) -> None:
    sweep = held_sweep(store)
    queued = store.add_trial(
        sweep.id,
        lease=lease_of(store, sweep.id),
        number=0,
        layout=cpu_layout(),
        prediction=prediction(),
        scaled=small_trial(),
    )
    end(store, store.start_trial(queued.id, lease=lease_of(store, queued.id), now=11.0), measurement())
    before = store.trials_version(sweep.id)
    store.set_estimates(sweep.id, {queued.id: estimate()}, lease=lease_of(store, sweep.id), now=14.0)
    assert store.trials_version(sweep.id) != before


def test_steps_are_no_other_version(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep, 0)
    before = store.trials_version(sweep.id)
    for step in range(3):
        store.add_step(trial.id, step_report(step), lease=lease_of(store, trial.id), now=12.0)
    assert store.trials_version(sweep.id) == before


def test_each_sweep_has_a_version_of_its_own(store: Store) -> None:
    first = held_sweep(store)
    create(store)
    second = claim(store)
    before = store.trials_version(first.id)
    measure(store, second, 0, mfu=0.3)
    assert store.trials_version(first.id) == before
    assert before == TrialsVersion(last_event=before.last_event, num_trials=0)
