from __future__ import annotations

import httpx
import pytest

from tests.api.service import StoreDriver
from tests.builders import cpu_layout, failure, measurement, sweep_request


@pytest.fixture
def ids(driver: StoreDriver) -> list[str]:
    """A sweep and three of its trials: the best, one slower, one that died."""
    sweep = driver.sweep(sweep_request(name="nightly"))
    best = driver.ended(sweep, 0, measurement(mfu=0.4, step_time_s=1.0), cpu_layout(tensor_parallel_degree=2))
    slow = driver.ended(sweep, 1, measurement(mfu=0.2, step_time_s=2.0), cpu_layout(data_parallel_replicate_degree=2))
    died = driver.ended(sweep, 2, failure(), cpu_layout(pipeline_parallel_degree=2))
    return [sweep.id, best.id, slow.id, died.id]


def test_a_sweep_stands_for_its_best_trial(client: httpx.Client, ids: list[str]) -> None:
    found = client.post("/comparisons", json={"of": [ids[0], ids[2]]}).json()
    assert found["heading"] == "A is 100.0 % faster than B"
    assert [item["trial_id"] for item in found["items"]] == ids[1:3]
    assert found["differing"] == ["data_parallel_degree", "tensor_parallel_degree"]
    assert found["items"][0]["beside"] is None
    assert found["items"][1]["beside"]["is_beyond_noise"] is True


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
    assert "in MFU" in found["heading"] or "cannot be told apart" in found["heading"]


@pytest.mark.parametrize(
    ("of", "status"),
    [
        ([], 422),
        (["tp2"], 422),
        (["sw-missing-0001", "sw-missing-0002"], 404),
        (["/explore?model=llama-3-8b", "tp2"], 422),
    ],
)
def test_what_cannot_be_compared_is_refused(client: httpx.Client, of: list[str], status: int) -> None:
    assert client.post("/comparisons", json={"of": of}).status_code == status


def test_no_more_than_four_are_compared_and_equal_words_are_one(client: httpx.Client, ids: list[str]) -> None:
    five = [ids[1], ids[2], "dp2 mb1 math fp32", "dp2 mb2 math fp32", "dp2 mb4 math fp32"]
    refused = client.post("/comparisons", json={"of": five})
    assert (refused.status_code, refused.json()["nearest"]) == (422, 4)
    assert client.post("/comparisons", json={"of": [ids[1], ids[1]]}).status_code == 422
