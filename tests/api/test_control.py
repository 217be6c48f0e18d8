"""Sweeps that are paused, resumed, extended, cloned, and trials that run again, over REST."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.core.comparison import Challenge
from autotuner.core.sweep import Sweep
from autotuner.store.sql import Store
from tests.api.bodies import CPU
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_layout, sweep_request
from tests.contracts.acts import release_sweep


def post(client: httpx.Client, path: str, body: Any = None, *, status: int = 200) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def finished(driver: StoreDriver) -> Sweep:
    """A sweep whose one trial is complete."""
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    return driver.finish(sweep)


# ---------------------------------------------------------------------- pauses


def test_a_running_sweep_says_that_a_pause_was_asked_for(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep()
    asked = post(client, f"/runs/{sweep.id}/pause")
    assert (asked["state"], asked["wanted"]) == ("running", "pause")
    assert client.get("/sweeps").json()["items"][0]["pause_requested"]
    assert post(client, f"/runs/{sweep.id}/resume")["wanted"] is None


def test_a_finished_sweep_cannot_be_paused(client: httpx.Client, driver: StoreDriver) -> None:
    refused = post(client, f"/runs/{finished(driver).id}/pause", status=409)
    assert "so it cannot be paused" in refused["detail"]


# ---------------------------------------------------------------------- budgets


def test_a_budget_that_leaves_nothing_to_do_is_refused_with_the_least_that_does(
    client: httpx.Client, driver: StoreDriver
) -> None:
    refused = post(client, f"/sweeps/{finished(driver).id}/budget", {"budget": {"num_trials": 1}}, status=422)
    assert (refused["field"], refused["value"], refused["nearest"]) == ("budget.num_trials", 1, 2)


@pytest.mark.parametrize("budget", [{"num_trials": 0}, {"trials": 9}, {"min_gain": 2.0}])
def test_a_budget_is_read_as_that_of_a_new_sweep_is(
    client: httpx.Client, driver: StoreDriver, budget: dict[str, object]
) -> None:
    refused = post(client, f"/sweeps/{driver.sweep().id}/budget", {"budget": budget}, status=422)
    assert refused["field"].startswith("budget")


def test_a_key_still_creates_nothing_once_the_budget_has_changed(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "ci-1"}
    first = client.post("/sweeps", json=CPU, headers=key).json()
    post(client, f"/sweeps/{first['id']}/budget", {"budget": {"num_trials": 30}})
    again = client.post("/sweeps", json=CPU, headers=key)
    assert (again.status_code, again.json()["id"], again.json()["budget"]["num_trials"]) == (200, first["id"], 30)


# ---------------------------------------------------------------------- trials again


def test_a_running_trial_cannot_be_run_again_yet(client: httpx.Client, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    assert "only after it has ended" in post(client, f"/trials/{trial.id}/rerun", status=409)["detail"]


# ---------------------------------------------------------------------- clones
def test_a_clone_is_asked_for_as_the_original_but_for_what_the_body_says(
    client: httpx.Client, driver: StoreDriver
) -> None:
    original = driver.sweep(sweep_request(name="nightly"))
    space = {"micro_batch_size": [2]}
    changes = {"name": "wider", "seed": 5, "space": space, "budget": {"num_trials": 2}, "trial": {"measured_steps": 9}}
    clone = client.post(f"/sweeps/{original.id}/clone", json=changes)
    assert clone.status_code == 201
    said = clone.json()
    assert clone.headers["Location"].endswith(said["id"])
    assert said["id"] != original.id
    before = client.get(f"/sweeps/{original.id}").json()["request"]
    assert said["request"] == before | {
        "name": "wider",
        "seed": 5,
        "space": before["space"] | space,
        "budget": before["budget"] | {"num_trials": 2},
        "trial": before["trial"] | {"measured_steps": 9},
    }


def test_a_clone_for_another_cluster_takes_the_space_that_suits_it(client: httpx.Client) -> None:
    large = {"model": "llama-3-8b", "cluster": "h100:64", "workload": {"seq_len": 8192, "global_batch_size": 64}}
    original = post(client, "/sweeps", large | {"space": {"tensor_parallel_degree": [8]}}, status=201)
    clone = post(client, f"/sweeps/{original['id']}/clone", {"cluster": "h100:8"}, status=201)
    assert clone["cluster"] == "h100:8"
    assert clone["request"]["space"]["tensor_parallel_degree"] is None


def test_a_clone_that_is_asked_for_twice_with_a_key_is_made_once(client: httpx.Client, driver: StoreDriver) -> None:
    path, key = f"/sweeps/{finished(driver).id}/clone", {"Idempotency-Key": "again-1"}
    first, second = (client.post(path, json={}, headers=key) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]


def test_a_clone_of_what_a_retune_started_compares_nothing(client: httpx.Client, driver: StoreDriver) -> None:
    challenged = driver.sweep(sweep_request(challenge=Challenge(incumbent=cpu_layout())))
    clone = post(client, f"/sweeps/{challenged.id}/clone", {}, status=201)
    assert clone["request"]["challenge"] is None


def test_a_clone_whose_space_holds_no_layout_is_refused(client: httpx.Client, driver: StoreDriver) -> None:
    body = {"space": {"tensor_parallel_degree": [64]}}
    assert post(client, f"/sweeps/{driver.sweep().id}/clone", body, status=422)["field"].startswith("space")


# ---------------------------------------------------------------------- pages
def test_the_pages_say_that_a_sweep_pauses_and_is_paused(driver: StoreDriver, store: Store, address: str) -> None:
    sweep = driver.sweep()
    store.runs.pause("sweep", sweep.id, now=NOW)
    assert "pause requested" in httpx.get(f"{address}/sweeps/{sweep.id}", timeout=60).text
    assert "pause requested" in httpx.get(f"{address}/", timeout=60).text
    release_sweep(store, sweep.id, owner=driver.owner, now=NOW)
    assert "state paused" in httpx.get(f"{address}/sweeps/{sweep.id}", timeout=60).text


def test_the_page_of_a_sweep_that_runs_a_trial_again_says_how_its_search_ended(
    driver: StoreDriver, store: Store, address: str
) -> None:
    sweep = finished(driver)
    store.control.rerun(f"{sweep.id}-0000", now=NOW)
    page = httpx.get(f"{address}/sweeps/{sweep.id}", timeout=60).text
    assert "opened again to repeat a trial" in page
