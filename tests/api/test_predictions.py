from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.catalog.hardware import load_accelerator
from autotuner.core import documents
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput
from autotuner.core.requests import PredictionRequest
from autotuner.door import Autotuner
from tests.api.test_sweeps import BODY

JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 4096, "global_batch_size": 64},
}


def test_a_space_restricts_the_table(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"space": {"tensor_parallel_degree": [4]}, "limit": 50}).json()
    assert {row["layout"]["tensor_parallel_degree"] for row in answer["items"]} == {4}


def test_a_space_without_a_legal_layout_is_refused_with_the_rule_that_empties_it(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"space": {"tensor_parallel_degree": [3]}})
    assert answer.status_code == 422
    assert answer.json()["field"] == "space"
    assert "the degrees multiply to 6 ranks, the cluster has 8" in answer.json()["detail"]


def test_where_no_layout_fits_the_table_is_empty_and_says_what_is_missing_and_what_would_help(
    client: httpx.Client,
) -> None:
    answer = client.post("/predictions", json=JOB | {"model": "llama-3-70b"}).json()
    assert (answer["items"], answer["num_fitting"]) == ([], 0)
    assert answer["num_legal"] > 0
    lacks = answer["shortfall"]
    memory_bytes = load_accelerator("h100").memory_bytes
    assert lacks["nearest"]["predicted"]["peak_bytes"] == pytest.approx(memory_bytes + lacks["missing_bytes"])
    assert lacks["remedies"]
    larger = lacks["larger"]
    job = JOB | {"model": "llama-3-70b", "cluster": f"h100:{larger['num_accelerators']}"}
    (row,) = client.post("/predictions", json=job | {"layout": larger["best"]["layout"]}).json()["items"]
    assert row["predicted"]["fits"]


def test_layouts_in_fp8_rank_beside_those_in_bf16_and_say_that_they_change_the_mathematics(
    client: httpx.Client,
) -> None:
    answer = client.post("/predictions", json=JOB | {"limit": 1000}).json()
    marked = {row["layout"]["precision"]: row["changes_mathematics"] for row in answer["items"]}
    assert marked == {"bf16": False, "fp8": True}
    assert answer["unchanged"] is None
    first = client.post("/predictions", json=JOB | {"limit": 1}).json()
    assert first["items"][0]["changes_mathematics"]
    best = next(row for row in answer["items"] if not row["changes_mathematics"])
    assert first["unchanged"] == best | {"rank": None}


def test_options_that_a_space_leaves_out_are_named_with_what_they_would_save(client: httpx.Client) -> None:
    answer = client.post("/predictions", json=JOB | {"space": {"compiled": [False]}}).json()
    named = {one["change"]: one for one in answer["not_searched"]}
    compiled = named["compiled off → on"]
    assert compiled["candidate"]["layout"]["compiled"]
    before, after = answer["items"][0]["predicted"], compiled["candidate"]["predicted"]
    assert compiled["saved_share"] == pytest.approx(1 - after["step_time_s"] / before["step_time_s"])


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


TODAY = {"tensor_parallel_degree": 8, "sequence_parallel": True}


def test_what_runs_today_and_is_the_best_gains_nothing(client: httpx.Client) -> None:
    best = client.post("/predictions", json=JOB | {"limit": 1}).json()["items"][0]["layout"]
    current = client.post("/predictions", json=JOB | {"limit": 1, "current": best}).json()["current"]
    assert current["best"] == {"gain": 0.0, "change": ""}


def test_one_layout_may_be_compared_with_what_runs_today(client: httpx.Client) -> None:
    body = JOB | {"layout": TODAY | {"compiled": True}, "current": TODAY}
    assert client.post("/predictions", json=body).json()["current"]["best"]["change"] == "compiled off → on"


def test_what_was_never_compared_of_todays_layout_is_said(client: httpx.Client) -> None:
    body = JOB | {"limit": 1, "current": TODAY | {"offload_activations": True}}
    assert any("activations offloaded" in said for said in client.post("/predictions", json=body).json()["caveats"])


RUN: dict[str, Any] = {"layout": {"tensor_parallel_degree": 8}}


def test_measured_runs_shift_every_prediction_and_narrow_it_and_are_said(client: httpx.Client) -> None:
    before = client.post("/predictions", json=JOB | {"limit": 1}).json()["items"][0]["predicted"]
    run = RUN | {"step_time_s": 1.5 * _step_s(client, JOB | RUN)}
    answer = client.post("/predictions", json=JOB | {"limit": 1, "measured": [run, run]}).json()
    after = answer["items"][0]["predicted"]
    assert 1.0 < after["step_time_s"] / before["step_time_s"] < 1.5
    assert after["relative_error"] < before["relative_error"]
    assert any(said.startswith("calibrated on 2 measured runs: factor 1.") for said in answer["caveats"])


def test_a_measured_run_may_be_of_another_model_size_and_workload(client: httpx.Client) -> None:
    other = {"model": "llama-3-70b", "cluster": "h100:64", "workload": {"seq_len": 8192, "global_batch_size": 128}}
    run = {"layout": {"tensor_parallel_degree": 8, "data_parallel_replicate_degree": 8}}
    tokens_per_s = 8192 * 128 / (1.5 * _step_s(client, JOB | other | run))
    measured = run | other | {"tokens_per_s": tokens_per_s}
    answer = client.post("/predictions", json=JOB | RUN | {"measured": [measured]}).json()
    assert answer["items"][0]["predicted"]["step_time_s"] > _step_s(client, JOB | RUN)


@pytest.mark.parametrize(
    ("run", "field"),
    [
        (RUN, "measured.0"),
        (RUN | {"step_time_s": 1.0, "tokens_per_s": 1.0}, "measured.0"),
        (RUN | {"step_time_s": 0.0}, "measured.0.step_time_s"),
        ({"layout": {"tensor_parallel_degree": 3}, "step_time_s": 1.0}, "measured.0.layout"),
        (RUN | {"step_time_s": 1.0, "cluster": "a100:8"}, "measured.0.cluster"),
    ],
)
def test_a_measured_run_that_cannot_be_is_refused_with_its_place(
    client: httpx.Client, run: dict[str, Any], field: str
) -> None:
    answer = client.post("/predictions", json=JOB | {"measured": [run]})
    assert answer.status_code in (400, 422)
    assert field in answer.text


def _step_s(client: httpx.Client, body: dict[str, Any]) -> float:
    (row,) = client.post("/predictions", json=body).json()["items"]
    return float(row["predicted"]["step_time_s"])


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"limt": 3},
        {"limit": 0},
        {"cluster": "h100:2097152"},
        {"model": {"base": "llama-3-8b", "num_layers": 0}},
        {"measured": [{"layout": {"tensor_parallel_degree": 7}, "step_time_s": 1.0}]},
        {"layout": {"pipeline_parallel_degree": 3}},
    ],
)
def test_a_bad_request_breaks_the_same_rule_by_rest_and_at_the_door(
    client: httpx.Client, wrong: dict[str, Any]
) -> None:
    body = JOB | wrong
    told = client.post("/predictions", json=body).json()
    with pytest.raises(InvalidInput) as refused:
        Autotuner().predict(documents.read(PredictionRequest, body))
    assert told["errors"] == [to_plain(documents.violation(one)) for one in refused.value.complaints]
