from __future__ import annotations

import time

from autotuner.core.errors import StoreUnavailable
from autotuner.runs.worker import Presence
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.health import Health
from autotuner.store.schema import memory_engine
from autotuner.store.sql import memory_store
from bench.fake_launcher import FakeLauncher
from tests.clocks import ManualClock


def test_a_worker_is_seen_while_it_runs_and_gone_when_it_was_stopped() -> None:
    store = memory_store()
    app = build(Settings(), store=store, launcher=FakeLauncher())
    app.background.start()
    while not store.health.workers():
        time.sleep(0.01)
    app.background.stop()
    assert store.health.workers() == []
    app.close()


def test_each_sign_of_life_is_of_its_time_and_the_start_stays() -> None:
    store, clock = memory_store(), ManualClock()
    presence = Presence(store.health, clock, name="worker-a")
    for seconds in (5.0, 10.0):
        clock.sleep(seconds)
        presence.tell()
    (seen,) = store.health.workers()
    assert (seen.name, seen.started_at, seen.seen_at) == ("worker-a", 1000.0, 1015.0)


def test_a_worker_stops_though_the_store_is_away() -> None:
    class Away(Health):
        def forget(self, name: str) -> None:
            raise StoreUnavailable(f"nobody forgets {name}")

    store: Health = Away(memory_engine())
    Presence(store, ManualClock(), name="worker-a").end()
