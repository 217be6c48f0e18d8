from __future__ import annotations

from typing import Any

import httpx
import pytest

from autotuner.core.link import LinkHealth
from autotuner.core.trial_spec import TrialSettings
from tests.api.service import StoreDriver
from tests.api.test_predictions import JOB
from tests.builders import breakdown, cpu_cluster, cpu_layout, measurement, step_timeline, sweep_request, tiny_job

LAYOUT: dict[str, Any] = {"tensor_parallel_degree": 8, "recompute": "full"}


def test_an_explanation_is_of_the_layout_that_a_prediction_is_of(client: httpx.Client) -> None:
    (row,) = client.post("/predictions", json=JOB | {"layout": LAYOUT}).json()["items"]
    explained = client.post("/explanations", json=JOB | {"layout": LAYOUT}).json()
    assert {name: explained[name] for name in ("label", "layout", "predicted")} == {
        name: row[name] for name in ("label", "layout", "predicted")
    }


def test_every_reason_against_a_layout_is_listed(client: httpx.Client) -> None:
    layout = {"tensor_parallel_degree": 3, "precision": "fp32", "virtual_stages_per_rank": 2}
    refused = client.post("/explanations", json=JOB | {"layout": layout})
    assert refused.status_code == 422
    fields = {error["field"] for error in refused.json()["errors"]}
    assert {"layout.tensor_parallel_degree", "layout.virtual_stages_per_rank"} <= fields


def test_a_layout_must_be_given(client: httpx.Client) -> None:
    refused = client.post("/explanations", json=JOB)
    assert (refused.status_code, refused.json()["field"]) == (422, "layout")


def test_an_explanation_stores_nothing(client: httpx.Client) -> None:
    client.post("/explanations", json=JOB | {"layout": LAYOUT})
    assert client.get("/sweeps").json()["total"] == 0


@pytest.mark.parametrize("route", ["/predictions", "/explanations"])
def test_an_unknown_stack_is_not_found_and_the_nearest_is_named(client: httpx.Client, route: str) -> None:
    refused = client.post(route, json=JOB | {"layout": LAYOUT, "stack": "megatrn"})
    assert (refused.status_code, refused.json()["nearest"]) == (404, "megatron")


def test_a_trial_is_explained_within_the_memory_that_it_had(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(trial=TrialSettings(memory_budget_bytes=10**8)))
    trial = driver.ended(sweep, 0)
    explained = client.get(f"/trials/{trial.id}/explanation").json()
    assert explained["limit_bytes"] == 10**8
    assert explained["layout"] == client.get(f"/trials/{trial.id}").json()["layout"]


def test_an_unknown_trial_has_no_explanation(client: httpx.Client) -> None:
    assert client.get("/trials/sw-none-0000/explanation").status_code == 404


def test_the_parts_of_a_trial_stand_beside_what_was_measured_of_them(client: httpx.Client, driver: StoreDriver) -> None:
    profiled = measurement(breakdown=breakdown(forward_s=0.1, backward_s=0.3))
    trial = driver.ended(driver.sweep(), 0, profiled)
    parts = client.get(f"/trials/{trial.id}/parts").json()
    measured = {part["name"]: part["measured_s"] for part in parts["step"]["parts"]}
    assert (measured["forward"], measured["backward"]) == (0.1, 0.3)
    assert parts["step"]["rank"] == 0
    assert "of the step computes" in parts["largest_loss"]
    assert [stage["stage"] for stage in parts["stages"]] == [0]


def test_a_sweep_without_trials_has_six_rules_without_pairs(client: httpx.Client, driver: StoreDriver) -> None:
    answer = client.get(f"/sweeps/{driver.sweep().id}/rules").json()
    assert answer["num_measured"] == 0
    assert all("no pairs" in item["statement"] for item in answer["items"])
    assert len(answer["items"]) == 6


def test_an_unknown_sweep_has_no_rules(client: httpx.Client) -> None:
    assert client.get("/sweeps/sw-none/rules").status_code == 404


def test_the_timeline_of_a_trial_is_predicted_and_stands_beside_the_step_that_was_recorded(
    client: httpx.Client, driver: StoreDriver
) -> None:
    trial = driver.ended(driver.sweep(), 0, measurement(timeline=step_timeline()))
    found = client.get(f"/trials/{trial.id}/timeline").json()
    assert found["measured"]["ranks"][0]["actions"][:2] == ["0F0", "0F1"]
    predicted = found["predicted"]
    assert predicted["timeline"]["ranks"][0]["actions"][0] == "0F0"
    assert predicted["timeline"]["step_s"] == pytest.approx((1 + predicted["apart"]) * predicted["predicted_s"])
    assert not found["is_small"]


def test_a_trial_that_has_not_run_has_a_predicted_timeline_alone(client: httpx.Client, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    found = client.get(f"/trials/{trial.id}/timeline").json()
    assert found["measured"] is None
    assert found["predicted"]["timeline"]["ranks"]


def test_a_trial_on_a_cluster_with_a_slow_link_tells_the_step_with_and_without_it(
    client: httpx.Client, driver: StoreDriver
) -> None:
    job = tiny_job(4, cluster=cpu_cluster(4, link_health=(LinkHealth(ends=(1, 2), delay_s=0.03),)))
    layout = cpu_layout(pipeline_parallel_degree=4)
    trial = driver.queued(driver.sweep(sweep_request(job=job)), 0, layout)
    found = client.get(f"/trials/{trial.id}/link-timelines").json()
    assert found["hops"][0]["ranks"] == [1, 2]
    assert {message["action"][1] for message in found["messages"]} == {"F", "B"}
    assert found["slow"]["timeline"]["ranks"][0]["actions"][0] == "0F0"
    assert found["cost"].startswith("With link 1_2 30 ms late, the step is predicted to take ")


def test_a_trial_on_healthy_links_has_no_slow_step(client: httpx.Client, driver: StoreDriver) -> None:
    found = client.get(f"/trials/{driver.running(driver.sweep(), 0).id}/link-timelines").json()
    assert found["slow"] is None
    assert found["links"] == []


def test_a_trial_on_one_machine_has_no_bandwidth_curve_and_hears_why(client: httpx.Client, driver: StoreDriver) -> None:
    trial = driver.running(driver.sweep(), 0)
    curve = client.get(f"/trials/{trial.id}/bandwidth-curve").json()
    assert (curve["ways"], len(curve["sentences"])) == ([], 1)
