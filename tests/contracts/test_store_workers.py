"""Store contract: who runs sweeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.health import KnownWorker
from autotuner.store.sql import Store

WORKER = KnownWorker(name="worker-a", version="0.9.0", started_at=10.0, seen_at=20.0)


def test_what_a_worker_tells_stands_in_the_place_of_what_it_told_before(store: Store) -> None:
    other = replace(WORKER, name="worker-b", seen_at=25.0)
    for told in (WORKER, other, replace(WORKER, seen_at=30.0)):
        store.health.tell(told)
    assert store.health.workers() == [replace(WORKER, seen_at=30.0), other]


def test_a_worker_that_stopped_is_forgotten_as_often_as_it_says_so(store: Store) -> None:
    store.health.tell(WORKER)
    for _ in range(2):
        store.health.forget(WORKER.name)
    assert store.health.workers() == []


def test_a_worker_that_died_is_forgotten_after_a_day(store: Store) -> None:
    store.health.tell(WORKER)
    later = replace(WORKER, name="worker-b", seen_at=WORKER.seen_at + 86_401)
    store.health.tell(later)
    assert store.health.workers() == [later]


@pytest.mark.parametrize(("silent_s", "alive"), [(-3600.0, True), (60.0, True), (61.0, False)])
def test_a_worker_lives_for_a_minute_after_it_told_so(silent_s: float, alive: bool) -> None:
    assert WORKER.is_alive(WORKER.seen_at + silent_s) is alive
