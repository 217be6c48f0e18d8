from __future__ import annotations

import httpx

from autotuner.core.run import KnownWorker
from autotuner.core.upkeep import MfuGateOutcome, Verdict
from tests.api.service import NOW, StoreDriver
from tests.browser.in_use import finished_gate, finished_run, retune
from tests.builders import sweep_request


def test_nothing_needs_anybody_where_nothing_went_wrong(client: httpx.Client, driver: StoreDriver) -> None:
    driver.finish(driver.sweep())
    assert client.get("/attention").json() == {"items": []}


def test_what_went_wrong_is_listed_the_worst_first_with_its_page(client: httpx.Client, driver: StoreDriver) -> None:
    retune(driver)
    finished_run(driver, Verdict.REGRESSION, 900.0, "lost 10 %")
    gate = finished_gate(driver, MfuGateOutcome.FAILED, 940.0, "6 % slower")
    found = client.get("/attention").json()["items"]
    assert [(one["kind"], one["path"], one["detail"]) for one in found[1:]] == [
        ("regression", "/retunes/nightly", "lost 10 %"),
        ("gate_failed", f"/gates/{gate.id}", "6 % slower"),
    ]
    assert (found[0]["kind"], found[0]["count"]) == ("no_worker", 2)


def test_sweeps_that_wait_need_somebody_only_while_no_worker_lives(client: httpx.Client, driver: StoreDriver) -> None:
    driver.store.create_sweep(sweep_request(), now=NOW - 60)
    (waiting,) = client.get("/attention").json()["items"]
    assert (waiting["kind"], waiting["at"], waiting["path"]) == ("no_worker", NOW - 60, "/?state=queued")
    assert waiting["detail"] == "1 sweep waits, and no worker has told within a minute that it lives"
    driver.store.workers.tell(KnownWorker(name="node1", version="1", started_at=NOW - 99, seen_at=NOW - 3))
    assert client.get("/attention").json()["items"] == []
