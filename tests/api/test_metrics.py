from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from autotuner.core.health import KnownWorker
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.sql import Store
from tests.api.service import NOW, StoreDriver, app_on, serve
from tests.builders import sweep_request
from tests.fake_launcher import FakeLauncher
from tests.patience import PATIENCE_S


@pytest.fixture
def address(store: Store) -> Iterator[str]:
    """Of a service that nobody has asked anything yet."""
    with serve(app_on(store)) as address:
        yield address


def told(address: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Every sample by its name and its labels."""
    answer = httpx.get(f"{address}/metrics", timeout=60)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def labels(**pairs: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairs.items())


def counted(address: str, name: str) -> dict[tuple[str, str, str], float]:
    """The counts of requests by method, route and status."""
    pairs = ((dict(where), count) for where, count in told(address).get(name, {}).items())
    return {(where["method"], where["route"], where["status"]): count for where, count in pairs}


def test_requests_are_counted_by_route_and_status_not_by_path(address: str) -> None:
    for path in ("/api/v1/sweeps/sw-aaaaaaaaaa", "/api/v1/sweeps/sw-bbbbbbbbbb", "/api/v1/health", "/static/icon.svg"):
        httpx.get(address + path, timeout=60)
    httpx.post(f"{address}/api/v1/sweeps", json={}, timeout=PATIENCE_S)
    httpx.request("PURGE", f"{address}/nowhere/1", timeout=PATIENCE_S)
    httpx.get(f"{address}/nowhere/2", timeout=60)
    assert counted(address, "autotuner_requests_total") == {
        ("GET", "/api/v1/sweeps/{sweep_id}", "404"): 2,
        ("GET", "/api/v1/health", "200"): 1,
        ("GET", "/static", "200"): 1,
        ("POST", "/api/v1/sweeps", "422"): 1,
        ("other", "none", "404"): 1,
        ("GET", "none", "404"): 1,
    }


def test_durations_are_described_by_route(address: str) -> None:
    httpx.get(f"{address}/api/v1/health", timeout=60)
    assert told(address)["autotuner_request_seconds_count"][labels(route="/api/v1/health")] == 1


def test_sweeps_trials_and_the_queue_are_reported_as_they_are_stored(
    address: str, store: Store, driver: StoreDriver
) -> None:
    driver.running(driver.sweep(), 0)
    store.create_sweep(sweep_request(), now=NOW - 90.0)
    for name, seen_at in (("worker-a", NOW - 30.0), ("worker-b", NOW - 90.0)):
        store.health.tell(KnownWorker(name=name, version="1", started_at=NOW - 100.0, seen_at=seen_at))
    found = told(address)
    assert found["autotuner_sweeps"][labels(state="running")] == 1
    assert found["autotuner_sweeps"][labels(state="failed")] == 0
    assert found["autotuner_open_trials"][labels(state="running")] == 1
    assert found["autotuner_trials_ended_last_hour"][labels(state="complete")] == 0
    assert found["autotuner_queue_age_seconds"] == {labels(): 90.0}
    assert found["autotuner_workers_alive"] == {labels(): 1.0}
    assert found["autotuner_deliveries_pending"] == {labels(): 0.0}
    assert found["autotuner_database_up"] == {labels(): 1.0}


def test_a_watched_event_loop_reports_its_lag(address: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (count := told(address)["autotuner_event_loop_lag_seconds_count"][labels()]):
        assert time.monotonic() < deadline
    assert count >= 1


def test_metrics_are_reported_while_the_database_is_away(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/never_migrated.db"
    with serve(build(Settings(num_workers=0, database_url=url), launcher=FakeLauncher())) as address:
        found = told(address)
    assert found["autotuner_database_up"] == {labels(): 0.0}
    assert "autotuner_sweeps" not in found
    assert "process_resident_memory_bytes" in found


@pytest.mark.parametrize("path", ["/api/v1/health", "/metrics"])
def test_services_of_one_process_count_their_own_requests(store: Store, path: str) -> None:
    app = app_on(store)
    with serve(app) as first, serve(app) as second:
        httpx.get(first + path, timeout=60)
        assert ("GET", path, "200") in counted(first, "autotuner_requests_total")
        assert counted(second, "autotuner_requests_total") == {}
