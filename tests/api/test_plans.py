from __future__ import annotations

from typing import Any

import httpx
import pytest

PLAN: dict[str, Any] = {
    "model": "llama-3-8b",
    "workload": {"seq_len": 4096, "global_batch_size": 256},
    "goal": {"num_tokens": 1e11, "deadline_s": 20 * 86_400.0},
    "accelerators": ["h100"],
    "sizes": [16, 32],
    "space": {"recompute": ["none"], "tensor_parallel_degree": [1], "pipeline_parallel_degree": [1]},
}


def computed(client: httpx.Client, plan_id: str) -> dict[str, Any]:
    """The plan once it is computed; a busy machine may take longer than one request waits."""
    while True:
        found: dict[str, Any] = client.get(f"/plans/{plan_id}", params={"wait_s": 20}, timeout=60).json()
        if found["answer"] is not None:
            return found


def test_a_plan_compares_clusters_with_intervals_of_time_cost_and_energy(client: httpx.Client) -> None:
    answer = computed(client, client.post("/plans", json=PLAN).json()["id"])["answer"]
    assert {one["cluster"] for one in answer["contenders"]} == {"h100-sxm:16", "h100-sxm:32"}
    for one in answer["contenders"]:
        for name in ("time_s", "cost", "energy_kwh"):
            interval = one["predicted"][name]
            assert interval["low"] < interval["median"] < interval["high"]
    assert [price["source"] for price in answer["prices"]] == ["Modal price list, per second times 3,600"]
    assert [one["change"] for one in answer["marginals"]][1:] == ["twice the network", "40 GB more memory"]


def test_the_same_question_is_the_same_plan_and_is_found_again(client: httpx.Client) -> None:
    first = client.post("/plans", json=PLAN)
    plan_id = first.json()["id"]
    assert first.headers["Location"].endswith(f"/plans/{plan_id}")
    found = computed(client, plan_id)
    again = client.post("/plans", json=PLAN)
    assert again.status_code == 200  # it was computed before
    assert again.json() == found


def test_a_plan_says_how_far_it_is(client: httpx.Client) -> None:
    response = client.post("/plans", json=PLAN | {"sizes": [8, 24, 40]})
    assert response.status_code == 202
    done = computed(client, response.json()["id"])
    assert done["answer"]["num_compared"] == 3
    assert done["num_done"] == done["num_known"] > 0


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"goal": {"num_tokens": 0}}, "num_tokens"),
        ({"goal": {"num_tokens": 1e11, "deadline_s": -1}}, "deadline_s"),
        ({"prices": {"h100": 0}}, "prices.h100"),
        ({"network_factors": [0]}, "network_factors"),
        ({"sizes": [12]}, "cluster"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_its_field(
    client: httpx.Client, changed: dict[str, Any], field: str
) -> None:
    response = client.post("/plans", json=PLAN | changed)
    assert response.status_code == 422
    assert field in response.text


def test_an_accelerator_that_nobody_knows_is_not_found(client: httpx.Client) -> None:
    response = client.post("/plans", json=PLAN | {"accelerators": ["h10"]})
    assert response.status_code == 404
    assert "h100" in response.json()["detail"]


def test_a_plan_that_was_never_asked_for_is_not_found(client: httpx.Client) -> None:
    assert client.get("/plans/0123456789abcdef").status_code == 404
