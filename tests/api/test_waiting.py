"""What waits says so, and why, in REST and on pages."""

from __future__ import annotations

import httpx
import pytest

from autotuner.core.trial import Trial
from autotuner.ports import Store
from tests.api.service import NOW, StoreDriver
from tests.builders import sweep_request
from tests.contracts.acts import claim_sweep, lease_of

REASON = "waits until trials that run on this machine have ended (process 17 has them)"


@pytest.fixture
def waiting(driver: StoreDriver) -> Trial:
    """A trial that has waited for devices for 35 s."""
    trial = driver.start(driver.sweep(), 0)
    return driver.store.set_waiting(
        trial.id, REASON, lease=lease_of(driver.store, trial.id, driver.owner), now=NOW - 35
    )


def test_a_trial_that_waits_says_why_and_takes_no_accelerator_hours(client: httpx.Client, waiting: Trial) -> None:
    trial = client.get(f"/trials/{waiting.id}").json()
    assert (trial["state"], trial["waiting"]) == ("waiting", {"reason": REASON, "since": NOW - 35})
    (listed,) = client.get(f"/sweeps/{waiting.sweep_id}/trials").json()["items"]
    assert listed["waiting"] == trial["waiting"]
    sweep = client.get(f"/sweeps/{waiting.sweep_id}").json()
    assert (sweep["trials"]["waiting"], sweep["trials"]["running"]) == (1, 0)
    assert sweep["progress"]["accelerator_hours"] == 0.0


def test_a_sweep_whose_worker_died_says_that_it_waits_for_one(client: httpx.Client, address: str, store: Store) -> None:
    sweep, _ = store.create_sweep(sweep_request(), now=NOW - 100)
    claim_sweep(store, owner="dead", now=NOW - 50, lease_s=15.0)
    reason = "waits for a worker: its worker gives no sign of life, and the next one takes it over"
    shown = client.get(f"/sweeps/{sweep.id}").json()
    assert (shown["state"], shown["waiting"]) == ("running", {"reason": reason, "since": NOW - 35})
    assert client.get("/sweeps").json()["items"][0]["waiting"] == shown["waiting"]
    page = httpx.get(f"{address}/sweeps/{sweep.id}", headers={"Accept": "text/html"}, timeout=60).text
    assert f"{reason}, 35 s" in page


@pytest.mark.parametrize("path", ["/sweeps/{0.sweep_id}", "/trials/{0.id}"])
def test_pages_say_what_a_trial_waits_for_and_for_how_long(address: str, waiting: Trial, path: str) -> None:
    page = httpx.get(address + path.format(waiting), headers={"Accept": "text/html"}, timeout=60).text
    assert f"{REASON[1:]}, 35 s" in page  # one begins a sentence with it
    assert "starting" not in page
