from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.costmodel.predict import predict_one
from tests.api.bodies import CPU
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_cluster, cpu_layout, measurement, sweep_request, tiny_job, tiny_model

# ---------------------------------------------------------------- descriptions

GPT2_CONFIG = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}


def test_a_hugging_face_config_is_stored_under_the_name_in_the_path(client: httpx.Client) -> None:
    saved = client.put("/models/my-gpt2", json=GPT2_CONFIG).json()
    assert (saved["name"], saved["num_layers"], saved["hidden_size"]) == ("my-gpt2", 12, 768)


def test_a_name_of_the_catalog_is_given_to_nobody(client: httpx.Client) -> None:
    model = client.put("/models/llama-3-70b", json=to_plain(tiny_model(name="llama-3-70b")))
    assert (model.status_code, "my-llama-3-70b" in model.json()["detail"]) == (409, True)
    for name in ("h100", "h100:64", "h100-sxm:7x9", "cpu:2"):
        cluster = client.put(f"/clusters/{name}", json=to_plain(replace(cpu_cluster(), name=name)))
        assert (cluster.status_code, "the catalog" in cluster.json()["detail"]) == (409, True), name
    assert client.get("/models/llama-3-70b").json()["num_layers"] == 80


# ---------------------------------------------------------------- calibrations

LAYOUT = cpu_layout(tensor_parallel_degree=2)
ONE = CPU | {"layout": to_plain(LAYOUT)}


@pytest.fixture
def slow(driver: StoreDriver) -> StoreDriver:
    """A machine on which two trials took one and a half times as long as predicted."""
    sweep = driver.sweep()
    step_time_s = 1.5 * predict_one(LAYOUT, tiny_job()).step_time.total_s
    for number in range(2):
        driver.ended(sweep, number, measurement(step_time_s=step_time_s), layout=LAYOUT)
    driver.finish(sweep)
    return driver


def predicted(client: httpx.Client, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    answer = client.post("/predictions", json=body).json()
    return answer["items"][0]["prediction"], _calibrations(answer)


def _calibrations(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [one["calibration"] for one in answer["caveats"] if one["kind"] == "calibrated"]


@pytest.mark.usefixtures("slow")
def test_stored_trials_shift_the_next_prediction_which_says_so(client: httpx.Client) -> None:
    alone, said_alone = predicted(client, ONE | {"uses_history": False})
    known, said = predicted(client, ONE)
    assert 1.1 < known["step_time_s"] / alone["step_time_s"] < 1.6
    (calibration,) = said
    assert (calibration["num_trials"], calibration["num_sweeps"]) == (2, 1)
    assert 1.0 < calibration["factor"] < 2.0
    assert not said_alone


@pytest.mark.usefixtures("slow")
def test_an_explanation_knows_what_a_prediction_knows(client: httpx.Client) -> None:
    known, _ = predicted(client, ONE)
    explained = client.post("/explanations", json=ONE).json()
    assert explained["prediction"]["step_time_s"] == pytest.approx(known["step_time_s"])
    assert [one["num_trials"] for one in _calibrations(explained)] == [2]


def test_a_trial_is_explained_with_what_its_sweep_knew(client: httpx.Client, slow: StoreDriver) -> None:
    explained = client.get(f"/trials/{slow.store.runs.list('sweep')[0][0].id}-0000/explanation").json()
    assert not _calibrations(explained)


@pytest.mark.usefixtures("slow")
def test_calibrations_of_other_accelerators_are_left_out_for_a_named_cluster(client: httpx.Client) -> None:
    assert len(client.get("/calibrations", params={"cluster": "cpu:1x4"}).json()["items"]) == 1
    assert client.get("/calibrations", params={"cluster": "h100:64"}).json()["total"] == 0


def test_equal_requests_stay_equal_whatever_was_measured_between_them(client: httpx.Client, slow: StoreDriver) -> None:
    headers, sweep = {"Idempotency-Key": "nightly"}, slow.sweep()
    first = client.post("/sweeps", json=CPU, headers=headers)
    slow.ended(sweep, 0, measurement(step_time_s=1.0), layout=LAYOUT)
    again = client.post("/sweeps", json=CPU, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_a_sweep_says_what_its_predictions_were_calibrated_on(client: httpx.Client, slow: StoreDriver) -> None:
    first, _ = slow.store.runs.list("sweep")
    assert client.get(f"/sweeps/{first[0].id}").json()["request"]["job"]["calibration"] is None
    later = slow.store.create_sweep(sweep_request(name="later"), now=NOW + 3600)[0]
    known = client.get(f"/sweeps/{later.id}").json()["request"]["job"]["calibration"]
    assert (known["num_trials"], known["num_sweeps"]) == (2, 1)
    assert 1 < known["factor"] < 2
