from __future__ import annotations

import httpx

from autotuner.core.run import KnownWorker
from tests.api.service import NOW, StoreDriver


def test_workers_are_listed_with_whether_they_live_and_what_they_run(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    for name, silent_s in ((driver.owner, 10.0), ("idle", 20.0), ("dead", 3600.0)):
        driver.store.workers.tell(KnownWorker(name=name, version="1", started_at=NOW - 7200, seen_at=NOW - silent_s))
    items = client.get("/workers").json()["items"]
    assert [(item["name"], item["is_alive"], item["sweep_id"]) for item in items] == [
        (driver.owner, True, sweep.id),
        ("idle", True, None),
        ("dead", False, None),
    ]
    assert client.get("/ready").json()["num_workers"] == 2
