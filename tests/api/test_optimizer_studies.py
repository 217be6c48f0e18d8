"""Optimizer studies over REST: queued once, listed, read with curves and front, cancelled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.store.sql import Store
from tests.runs import claimed, lease_of
from tests.studies import candidate, reached_trial, study_trial

STUDY: dict[str, Any] = {
    "model": "gpt-3-125m",
    "cluster": "h100:2",
    "workload": {"seq_len": 256, "global_batch_size": 8},
    "layout": {"data_parallel_replicate_degree": 2, "precision": "bf16", "attention_kernel": "flash"},
    "target_loss": 5.0,
    "space": {"global_batch_sizes": [8, 64], "data_parallel_degrees": [1, 2]},
    "name": "after the sweep",
}
KEY = {"Idempotency-Key": "ci-1"}


@pytest.fixture
def study(client: httpx.Client) -> dict[str, Any]:
    answer = client.post("/optimizer-studies", json=STUDY, headers=KEY)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_key_creates_one_study(client: httpx.Client, study: dict[str, Any]) -> None:
    again = client.post("/optimizer-studies", json=STUDY, headers=KEY)
    assert (again.status_code, again.json()["id"]) == (200, study["id"])
    other = client.post("/optimizer-studies", json=STUDY | {"target_loss": 4.0}, headers=KEY)
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"target_loss": 0}, "target_loss"),
        ({"space": {"global_batch_sizes": [7]}}, "space"),
        ({"space": {"optimizers": ["sgd"]}}, "optimizers"),
        ({"cluster": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_studied_is_refused_by_name(client: httpx.Client, changes: dict[str, Any], field: str) -> None:
    refused = client.post("/optimizer-studies", json=STUDY | changes)
    assert refused.status_code in (404, 422)
    assert field in refused.text


def test_a_study_tells_its_curves_and_its_front(client: httpx.Client, store: Store, study: dict[str, Any]) -> None:
    held = claimed(store, "study", now=1e12)
    fast, cheap = reached_trial(0, 2.0, 3.0), reached_trial(1, 8.0, 1.0)
    for trial in (fast, cheap, study_trial(2, 6.0, 5.9, candidate=candidate(batch=64))):
        store.optimizer_studies.save_trial(replace(trial, study_id=study["id"]), lease_of(held))
    found = client.get(f"/optimizer-studies/{study['id']}").json()
    assert found["front"] == [0, 1]
    assert [trial["is_on_front"] for trial in found["trials"]] == [True, True, False]
    assert found["trials"][0]["losses"] == [6.0, 5.5, 5.0, 4.5]
    assert found["trials"][0]["reached"]["time_s"] == 2.0
    assert found["trials"][2]["label"] == "adamw, learning rate 0.001, batch 64, data-parallel degree 2"
