"""Store contract: what an operator watches."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.run import RunState
from autotuner.core.trial import TrialState
from autotuner.store.sql import Store
from tests.announcements import announce
from tests.builders import failure
from tests.contracts.acts import add, create, end, finish, held_sweep, measure, start
from tests.contracts.upkeep import announcement, webhook
from tests.runs import give_up_delivery


def test_an_empty_store_counts_nothing_and_waits_for_nothing(store: Store) -> None:
    gauges = store.health.gauges(now=100.0)
    assert (gauges.num_sweeps, gauges.num_open_trials, gauges.num_ended_trials) == ({}, {}, {})
    assert (gauges.oldest_queued_at, gauges.oldest_pending_at) == (None, None)
    assert gauges.num_pending_deliveries == 0


def test_sweeps_and_trials_are_counted_by_state(store: Store) -> None:
    ended = held_sweep(store)
    measure(store, ended, 0, mfu=0.3)
    finish(store, ended)
    sweep = held_sweep(store)
    measure(store, sweep, 0, mfu=0.3)
    end(store, start(store, sweep, 1), failure())
    start(store, sweep, 2)
    add(store, sweep, 3)
    create(store, now=5.0)
    create(store, now=7.0)
    gauges = store.health.gauges(now=100.0)
    assert gauges.num_sweeps == {RunState.COMPLETE: 1, RunState.RUNNING: 1, RunState.QUEUED: 2}
    assert gauges.num_open_trials == {
        TrialState.COMPLETE: 1,
        TrialState.FAILED: 1,
        TrialState.RUNNING: 1,
        TrialState.QUEUED: 1,
    }
    assert gauges.num_ended_trials == {TrialState.COMPLETE: 2, TrialState.FAILED: 1}
    assert gauges.oldest_queued_at == 5.0
    assert store.health.gauges(now=12.0 + 3600.0).num_ended_trials == {}


def test_deliveries_that_are_pending_are_counted_with_the_oldest(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number, at in enumerate((30.0, 20.0, 10.0)):
        announce(store.announcements, replace(announcement(f"rt-{number}"), at=at))
    *_, oldest = store.announcements.deliveries()[0]
    give_up_delivery(store, oldest.id, "410", now=40.0)
    gauges = store.health.gauges(now=100.0)
    assert (gauges.num_pending_deliveries, gauges.oldest_pending_at) == (2, 20.0)
