"""What stored trials teach, over REST: to predictions, and to who asks what was learnt."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.core.codec import to_plain
from autotuner.costmodel.predict import predict_one
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_cluster, cpu_layout, measurement, sweep_request, tiny_job, tiny_model

JOB: dict[str, Any] = {
    "model": to_plain(tiny_model()),
    "cluster": to_plain(cpu_cluster()),
    "workload": {"seq_len": 64, "global_batch_size": 8},
}
LAYOUT = cpu_layout(tensor_parallel_degree=2)
ONE = JOB | {"layout": to_plain(LAYOUT)}


@pytest.fixture
def slow(driver: StoreDriver) -> StoreDriver:
    """A machine on which two trials took one and a half times as long as predicted."""
    sweep = driver.sweep()
    step_time_s = 1.5 * predict_one(LAYOUT, tiny_job()).step_time.total_s
    for number in range(2):
        driver.ended(sweep, number, measurement(step_time_s=step_time_s), layout=LAYOUT)
    driver.finish(sweep)
    return driver


def predicted(client: httpx.Client, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    answer = client.post("/predictions", json=body).json()
    return answer["items"][0]["predicted"], answer["caveats"]


def test_before_any_trial_nothing_was_learnt(client: httpx.Client) -> None:
    assert client.get("/calibrations").json() == {"items": []}


@pytest.mark.usefixtures("slow")
def test_stored_trials_shift_the_next_prediction_which_says_so(client: httpx.Client) -> None:
    alone, said_alone = predicted(client, ONE | {"uses_history": False})
    known, said = predicted(client, ONE)
    assert 1.1 < known["step_time_s"] / alone["step_time_s"] < 1.6
    assert any(caveat.startswith("calibrated on 2 trials of 1 sweep: factor 1.") for caveat in said)
    assert not any("calibrated" in caveat for caveat in said_alone)


@pytest.mark.usefixtures("slow")
def test_an_explanation_knows_what_a_prediction_knows(client: httpx.Client) -> None:
    known, _ = predicted(client, ONE)
    explained = client.post("/explanations", json=ONE).json()
    assert explained["predicted"]["step_time_s"] == pytest.approx(known["step_time_s"])
    assert any("calibrated on 2 trials" in caveat for caveat in explained["caveats"])


def test_a_trial_is_explained_with_what_its_sweep_knew(client: httpx.Client, slow: StoreDriver) -> None:
    explained = client.get(f"/trials/{slow.store.runs.list('sweep')[0][0].id}-0000/explanation").json()
    assert not any("calibrated" in caveat for caveat in explained["caveats"])


@pytest.mark.usefixtures("slow")
def test_what_was_learnt_is_told_with_its_intervals(client: httpx.Client) -> None:
    (item,) = client.get("/calibrations").json()["items"]
    assert (item["accelerator"], item["stack"], item["trainer"]) == ("cpu", "torch", None)
    assert (item["num_trials"], item["num_sweeps"]) == (2, 1)
    assert item["whole_step"]["factor"] == pytest.approx(1.5, rel=0.2)
    assert 0.0 < item["whole_step"]["relative_error"] < 0.5
    assert item["median_error"] == pytest.approx(1 / 3, abs=0.01)
    assert item["left_out_error"] is None


@pytest.mark.usefixtures("slow")
def test_what_was_learnt_on_other_accelerators_is_left_out_where_a_cluster_is_named(client: httpx.Client) -> None:
    assert len(client.get("/calibrations", params={"cluster": "cpu:1x4"}).json()["items"]) == 1
    assert client.get("/calibrations", params={"cluster": "h100:64"}).json() == {"items": []}


def test_a_cluster_that_is_not_there_is_named(client: httpx.Client) -> None:
    answer = client.get("/calibrations", params={"cluster": "h1000:64"})
    assert answer.status_code == 404
    assert "h1000" in answer.json()["detail"]


def test_a_sweep_is_stored_with_whether_it_knows_earlier_trials(client: httpx.Client) -> None:
    sweep = client.post("/sweeps", json=JOB | {"uses_history": False}).json()
    assert client.get(f"/sweeps/{sweep['id']}").json()["request"]["uses_history"] is False


def test_equal_requests_stay_equal_whatever_was_measured_between_them(client: httpx.Client, slow: StoreDriver) -> None:
    headers, sweep = {"Idempotency-Key": "nightly"}, slow.sweep()
    first = client.post("/sweeps", json=JOB, headers=headers)
    slow.ended(sweep, 0, measurement(step_time_s=1.0), layout=LAYOUT)
    again = client.post("/sweeps", json=JOB, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_a_sweep_says_what_its_predictions_were_calibrated_on(client: httpx.Client, slow: StoreDriver) -> None:
    first, _ = slow.store.runs.list("sweep")
    assert client.get(f"/sweeps/{first[0].id}").json()["caveats"] == []
    later = slow.store.create_sweep(sweep_request(name="later"), now=NOW + 3600)[0]
    (said,) = client.get(f"/sweeps/{later.id}").json()["caveats"]
    assert said.startswith("calibrated on 2 trials of 1 sweep: factor 1.")
