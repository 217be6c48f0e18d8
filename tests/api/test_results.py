from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from autotuner.core.choices import Recompute
from autotuner.core.link import LinkHealth
from autotuner.core.sweep import Sweep
from autotuner.core.trial_spec import TrialSettings
from tests.api.bodies import EIGHT
from tests.api.service import StoreDriver
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    sweep_request,
    tiny_job,
)

# ---------------------------------------------------------------- results

PLAIN = cpu_layout(tensor_parallel_degree=2)
FULL = replace(PLAIN, recompute=Recompute.FULL)


@pytest.fixture
def sweep(driver: StoreDriver) -> Sweep:
    """Two layouts that were measured, and one that ran out of memory."""
    made = driver.sweep()
    driver.ended(made, 0, measurement(step_time_s=0.75, mfu=0.2, tokens_per_s=700.0), layout=FULL)
    driver.ended(made, 1, measurement(step_time_s=0.5, mfu=0.3, tokens_per_s=1000.0), layout=PLAIN)
    driver.ended(made, 2, failure(), layout=replace(PLAIN, micro_batch_size=4))
    return made


def test_a_sweep_without_a_rank_has_no_answer(client: httpx.Client, driver: StoreDriver) -> None:
    made = driver.sweep()
    assert client.get(f"/sweeps/{made.id}/answer").json() == {"answer": None, "prospects": None}
    assert client.get(f"/sweeps/{made.id}/failures").json()["items"] == []
    assert client.get(f"/sweeps/{made.id}/accuracy").json()["trials"] == []
    assert client.get(f"/sweeps/{made.id}/choices").json()["grid"]["cells"] == []


def test_choices_show_the_two_that_were_asked_for(client: httpx.Client, sweep: Sweep) -> None:
    answer = client.get(f"/sweeps/{sweep.id}/choices", params={"rows": "mb", "columns": "recompute"}).json()
    assert answer["grid"]["columns"] == ["full", "none"]
    assert [[cell["trial"] for cell in row] for row in answer["grid"]["cells"]] == [[0, 1], [None, 2]]
    effect = answer["choices"]["effects"][0]
    assert (effect["subject"], effect["before"], effect["after"]) == ("recompute", "full", "none")
    assert effect["median_gain"] == pytest.approx(0.5)


def test_a_choice_that_there_is_none_of_is_refused(client: httpx.Client, sweep: Sweep) -> None:
    refused = client.get(f"/sweeps/{sweep.id}/choices", params={"rows": "zp"})
    assert refused.status_code == 422
    assert "must be one of tp" in refused.text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"metrics": "mfu,tokens_per_joule"}, "power_w"),
        ({"metrics": "mfu"}, "must name two metrics or more"),
        ({"metrics": "mfu,speed"}, "must be one of mfu"),
        ({"profile": "mfu=fast"}, "must be a number above 0"),
    ],
)
def test_what_cannot_be_told_or_read_is_refused(
    client: httpx.Client, sweep: Sweep, asked: dict[str, str], told: str
) -> None:
    refused = client.get(f"/sweeps/{sweep.id}/front", params=asked)
    assert refused.status_code == 422
    assert told in refused.text


# ---------------------------------------------------------------- comparisons


@pytest.fixture
def ids(driver: StoreDriver) -> list[str]:
    """A sweep and three of its trials: the best, one slower, one that died."""
    sweep = driver.sweep(sweep_request(name="nightly"))
    best = driver.ended(sweep, 0, measurement(mfu=0.4, step_time_s=1.0), cpu_layout(tensor_parallel_degree=2))
    slow = driver.ended(sweep, 1, measurement(mfu=0.2, step_time_s=2.0), cpu_layout(data_parallel_replicate_degree=2))
    died = driver.ended(sweep, 2, failure(), cpu_layout(pipeline_parallel_degree=2))
    return [sweep.id, best.id, slow.id, died.id]


def test_a_layout_in_words_and_flags_are_of_the_job_of_the_first(client: httpx.Client, ids: list[str]) -> None:
    words = client.post("/comparisons", json={"of": [ids[1], "dp2 mb1 math fp32"]}).json()
    assert words["items"][1]["figures"]["source"] == "predicted"
    flags = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --attention-backend unfused"
    read = client.post("/comparisons", json={"of": [ids[1]], "flags": flags}).json()
    assert read["items"][1]["layout"]["pipeline_parallel_degree"] == 2
    assert read["items"][1]["notes"]


def test_flags_may_be_a_whole_launch_script(client: httpx.Client, ids: list[str]) -> None:
    script = "--pipeline-model-parallel-size 2 --micro-batch-size 1 --attention-backend unfused".ljust(15_000)
    assert client.post("/comparisons", json={"of": [ids[1]], "flags": script}).status_code == 200


def test_a_trial_that_died_is_compared_by_its_prediction(client: httpx.Client, ids: list[str]) -> None:
    found = client.post("/comparisons", json={"of": [ids[1], ids[3]]}).json()
    assert [item["figures"]["source"] for item in found["items"]] == ["measured", "predicted"]


def test_an_address_that_explores_a_layout_is_compared_in_its_own_job(client: httpx.Client, ids: list[str]) -> None:
    address = "/explore?model=llama-3-8b&cluster=h100:8&seq_len=8192&global_batch_size=64&layout=fsdp8 mb1 flash bf16"
    found = client.post("/comparisons", json={"of": [ids[1], address]}).json()
    assert found["is_one_job"] is False
    assert [item["letter"] for item in found["items"] if item["beside"] is None] == [found["fastest"]]


def test_no_more_than_four_are_compared_and_equal_words_are_one(client: httpx.Client, ids: list[str]) -> None:
    five = [ids[1], ids[2], "dp2 mb1 math fp32", "dp2 mb2 math fp32", "dp2 mb4 math fp32"]
    refused = client.post("/comparisons", json={"of": five})
    assert (refused.status_code, refused.json()["nearest"]) == (422, 4)
    assert client.post("/comparisons", json={"of": [ids[1], ids[1]]}).status_code == 422


# ---------------------------------------------------------------- explanations

LAYOUT: dict[str, Any] = {"tensor_parallel_degree": 8, "recompute": "full"}


def test_an_explanation_is_of_the_layout_that_a_prediction_is_of(client: httpx.Client) -> None:
    (row,) = client.post("/predictions", json=EIGHT | {"layout": LAYOUT}).json()["items"]
    explained = client.post("/explanations", json=EIGHT | {"layout": LAYOUT}).json()
    assert (explained["label"], explained["layout"]) == (row["label"], row["layout"])
    assert explained["prediction"] == row["prediction"]


def test_a_trial_is_explained_within_the_memory_that_it_had(client: httpx.Client, driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(trial=TrialSettings(memory_budget_bytes=10**8)))
    trial = driver.ended(sweep, 0)
    explained = client.get(f"/trials/{trial.id}/explanation").json()
    assert explained["limit_bytes"] == 10**8
    assert explained["layout"] == client.get(f"/trials/{trial.id}").json()["layout"]


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
    assert found["links"][0]["delay_s"] == 0.03
    assert found["added_s"] > 0
