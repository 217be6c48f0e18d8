"""The store in this process's memory: one transaction at a time, whoever asks."""

from __future__ import annotations

from autotuner.store.schema import head_revision
from autotuner.store.sql import memory_store
from tests.builders import step_report
from tests.contracts.acts import create, held_sweep, lease_of, start
from tests.contracts.crowd import claim_all, in_threads


def test_each_store_in_memory_is_empty_and_at_the_newest_revision() -> None:
    first, second = memory_store(), memory_store()
    create(first)
    assert (first.runs.list("sweep")[1], second.runs.list("sweep")[1]) == (1, 0)
    assert second.check() == head_revision()
    first.close()
    second.close()


def test_threads_on_a_store_in_memory_do_not_see_into_each_others_transactions() -> None:
    store = memory_store()
    ids = {create(store, now=float(number)).id for number in range(24)}
    claimed = in_threads(8, lambda index: claim_all(store, f"thread-{index}"))
    assert sorted(sweep_id for mine in claimed for sweep_id in mine) == sorted(ids)
    store.close()


def test_threads_that_write_to_one_sweep_in_memory_lose_no_event() -> None:
    store = memory_store()
    sweep = held_sweep(store)
    trials = [start(store, sweep, number) for number in range(4)]

    def report(index: int) -> None:
        for step in range(20):
            store.add_step(trials[index].id, step_report(step), lease=lease_of(store, trials[index].id), now=12.0)

    in_threads(4, report)
    told = [event for event in store.events(sweep.id) if event.kind == "trial.step"]
    assert len({event.sequence for event in told}) == len(told) == 80
    store.close()
