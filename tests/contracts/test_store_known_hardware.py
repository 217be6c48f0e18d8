"""Which accelerators the history of a store knows."""

from __future__ import annotations

from dataclasses import replace

from autotuner.store.sql import Store
from tests.builders import tiny_job
from tests.contracts.acts import create, held_sweep, measure


def test_only_accelerators_that_a_trial_has_ended_on_are_known(store: Store) -> None:
    assert store.history.accelerators() == []
    sweep = held_sweep(store)
    assert store.history.accelerators() == []
    measure(store, sweep, 0, mfu=0.3)
    measure(store, sweep, 1, mfu=0.4)
    assert store.history.accelerators() == [sweep.request.job.cluster.accelerator.name]


def test_simulated_accelerators_are_not_known(store: Store) -> None:
    job = tiny_job()
    held = held_sweep(store, job=replace(job, cluster=replace(job.cluster, engine="simulated")))
    measure(store, held, 0, mfu=0.3)
    create(store)
    assert store.history.accelerators() == []
