from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.test_sweeps import BODY

JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 4096, "global_batch_size": 64},
}


def test_one_layout_gets_one_prediction_whose_parts_sum_to_its_totals(client: httpx.Client) -> None:
    layout = {"tensor_parallel_degree": 8, "recompute": "full"}
    answer = client.post("/predictions", json=JOB | {"layout": layout}).json()
    assert (len(answer["items"]), answer["num_legal"], answer["num_fitting"]) == (1, None, None)
    (row,) = answer["items"]
    assert row["layout"]["tensor_parallel_degree"] == 8
    predicted = row["predicted"]
    assert predicted["step_time_s"] == pytest.approx(sum(predicted["step_time"].values()))
    parts = [value for name, value in predicted["memory"].items() if name.endswith("_bytes")]
    assert predicted["peak_bytes"] == pytest.approx(sum(parts))


def test_without_a_layout_the_best_of_the_space_come_highest_predicted_mfu_first(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"limit": 5}).json()
    mfus = [row["predicted"]["mfu"] for row in answer["items"]]
    assert len(mfus) == 5
    assert mfus == sorted(mfus, reverse=True)
    assert [row["rank"] for row in answer["items"]] == [1, 2, 3, 4, 5]
    assert all(row["predicted"]["fits"] for row in answer["items"])
    assert answer["num_legal"] >= answer["num_fitting"] >= 5


def test_a_space_restricts_the_table(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"space": {"tensor_parallel_degree": [4]}, "limit": 50}).json()
    assert {row["layout"]["tensor_parallel_degree"] for row in answer["items"]} == {4}


def test_a_space_without_a_legal_layout_is_refused_with_the_rule_that_empties_it(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"space": {"tensor_parallel_degree": [3]}})
    assert answer.status_code == 422
    assert answer.json()["field"] == "space"
    assert "the degrees multiply to 6 ranks, the cluster has 8" in answer.json()["detail"]


def test_where_no_layout_fits_the_table_is_empty_and_says_how_many_are_legal(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"model": "llama-3.1-405b"}).json()
    assert (answer["items"], answer["num_fitting"]) == ([], 0)
    assert answer["num_legal"] > 0


def test_a_prediction_carries_its_interval_and_how_sure_it_is_to_fit(client: httpx.Client) -> None:
    (row,) = client.post("/predictions", json=JOB | {"layout": {"tensor_parallel_degree": 8}}).json()["items"]
    assert row["predicted"]["relative_error"] > 0
    assert 0 <= row["predicted"]["fit_probability"] <= 1


def test_a_prediction_for_a_device_without_published_runs_is_not_validated(
    client: httpx.Client,
) -> None:
    job = JOB | {"cluster": "mi300x:8", "layout": {"tensor_parallel_degree": 8}}
    (row,) = client.post("/predictions", json=job).json()["items"]
    assert row["predicted"]["validated"] is False
    assert row["predicted"]["relative_error"] > 0


def test_an_answer_names_what_of_it_was_never_compared_with_a_measured_run(client: httpx.Client) -> None:
    layout = {"tensor_parallel_degree": 8, "offload_activations": True}
    answer = client.post("/predictions", json=JOB | {"layout": layout, "stack": "nemo"}).json()
    assert answer["items"][0]["predicted"]["never_compared"] == ["activations offloaded"]
    assert any("dense models on nemo with h100-sxm were compared with" in said for said in answer["caveats"])
    assert "never compared with a measured run, on any stack or device: activations offloaded" in answer["caveats"]


def test_a_prediction_stores_nothing(client: httpx.Client) -> None:
    client.post("/predictions", json=BODY)
    assert client.get("/sweeps").json()["total"] == 0


@pytest.mark.parametrize(("limit", "nearest"), [(0, 1), (1001, 1000)])
def test_a_limit_out_of_range_names_the_nearest(client: httpx.Client, limit: int, nearest: int) -> None:
    refused = client.post("/predictions", json=JOB | {"limit": limit})
    assert (refused.status_code, refused.json()["field"], refused.json()["nearest"]) == (422, "limit", nearest)


def test_a_layout_and_a_space_together_are_refused(client: httpx.Client) -> None:
    refused = client.post("/predictions", json=JOB | {"layout": {}, "space": {"tensor_parallel_degree": [4]}})
    assert (refused.status_code, refused.json()["field"]) == (422, "space")
