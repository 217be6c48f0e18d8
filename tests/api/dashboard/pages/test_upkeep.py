"""Buttons of the pages of gates, studies, retunes and clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from autotuner.core.run import RunState
from autotuner.store.sql import Store
from tests.api.service import NOW, StoreDriver
from tests.browser.in_use import queued_gate, retune
from tests.builders import cpu_cluster
from tests.studies import study_request


def queued_study(driver: StoreDriver) -> str:
    return driver.store.optimizer_studies.create(study_request(), now=NOW)[0].id


def gate_path(driver: StoreDriver) -> str:
    return f"/gates/{queued_gate(driver).id}"


def study_path(driver: StoreDriver) -> str:
    return f"/optimizer-studies/{queued_study(driver)}"


@pytest.mark.parametrize("path_of", [gate_path, study_path])
def test_what_is_under_way_has_a_button_that_ends_it(
    browser: httpx.Client, driver: StoreDriver, path_of: Callable[[StoreDriver], str]
) -> None:
    path = path_of(driver)
    assert f'action="{path}/cancel"' in browser.get(path).text
    answer = browser.post(f"{path}/cancel")
    assert (answer.status_code, answer.headers["Location"]) == (303, path)
    kind = "sweep" if "gates" in path else "study"  # a gate ends with its sweep
    (run,), _ = driver.store.runs.list(kind)
    assert run.state is RunState.CANCELLED


def test_a_retune_is_paused_resumed_and_run_by_hand(browser: httpx.Client, driver: StoreDriver, store: Store) -> None:
    retune(driver)
    assert browser.post("/retunes/nightly/pause").status_code == 303
    assert store.retunes.get("nightly").is_paused
    assert 'action="/retunes/nightly/resume"' in browser.get("/retunes/nightly").text
    assert browser.post("/retunes/nightly/resume").status_code == 303
    assert not store.retunes.get("nightly").is_paused
    assert browser.post("/retunes/nightly/run").status_code == 303
    assert len(store.retunes.runs("nightly")[0]) == 1


def test_a_cluster_is_checked_and_its_check_cancelled(browser: httpx.Client, store: Store) -> None:
    store.descriptions.save(replace(cpu_cluster(2), name="pair", num_nodes=2, engine="two"))
    assert 'action="/clusters/pair/check"' in browser.get("/clusters/pair").text
    asked = browser.post("/clusters/pair/check")
    assert (asked.status_code, asked.headers["Location"]) == (303, "/clusters/pair")
    assert 'action="/clusters/pair/cancel"' in browser.get("/clusters/pair").text
    assert browser.post("/clusters/pair/cancel").status_code == 303
    (check,), _ = store.runs.list("check", subject="pair")
    assert check.state is RunState.CANCELLED


def test_a_cluster_without_an_engine_has_no_button(browser: httpx.Client, store: Store) -> None:
    store.descriptions.save(replace(cpu_cluster(2), name="here"))
    assert "Check now" not in browser.get("/clusters/here").text
