from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.service import StoreDriver

JOB: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "h100:8",
    "workload": {"seq_len": 8192, "global_batch_size": 64},
}
LAYOUT = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "recompute": "full"}


def test_an_illegal_layout_is_refused_with_its_reasons(client: httpx.Client) -> None:
    refused = client.post("/exports", json=JOB | {"layout": {"tensor_parallel_degree": 3}, "format": "torchrun"})
    assert refused.status_code == 422
    assert {error["field"] for error in refused.json()["errors"]} >= {"layout.tensor_parallel_degree"}


def test_a_layout_may_be_sent_in_the_words_that_tables_print(client: httpx.Client) -> None:
    said = client.post("/exports", json=JOB | {"layout": "fsdp8 mb1 recompute-full", "format": "arguments"}).json()
    spelt = client.post("/exports", json=JOB | {"layout": LAYOUT, "format": "arguments"}).json()
    assert said == spelt


def test_a_word_that_no_layout_has_is_refused_with_the_nearest(client: httpx.Client) -> None:
    refused = client.post("/exports", json=JOB | {"layout": "fspd8 mb1", "format": "arguments"})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert (error["field"], error["value"], error["nearest"]) == ("layout", "fspd8", "fsdp8")
    endless = client.post("/exports", json=JOB | {"layout": "mb1 " * 1000, "format": "arguments"})
    assert (endless.status_code, endless.json()["field"]) == (422, "layout")


def test_a_layout_is_written_for_the_stack_of_its_format_unless_another_is_named(client: httpx.Client) -> None:
    body = JOB | {"layout": LAYOUT, "format": "megatron-lm"}
    assert client.post("/exports", json=body | {"stack": "megatron"}).status_code == 200
    refused = client.post("/exports", json=body | {"stack": "megatrn"})
    assert (refused.status_code, refused.json()["nearest"]) == (404, "megatron")


def test_a_trial_that_is_not_stored_or_a_format_that_is_none_is_refused(
    client: httpx.Client, driver: StoreDriver
) -> None:
    trial = driver.ended(driver.sweep(), 0)
    assert client.get("/trials/sw-none-0000/export", params={"format": "torchrun"}).status_code == 404
    assert client.get(f"/trials/{trial.id}/export", params={"format": "fortran"}).status_code == 422
    assert client.get(f"/trials/{trial.id}/export").status_code == 422


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"text": "once upon a time"}, "looks like no configuration that is known"),
        ({"text": "x" * 1_000_001}, "1000000"),
        ({"text": "--bf16", "format": "fortran"}, "must be one of"),
        ({"text": "--bf16", "num_ranks": 0}, "must be 1 or more"),
        ({"text": "[" * 100_000}, "config"),
        ({}, "is required"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_rule(client: httpx.Client, body: dict[str, Any], said: str) -> None:
    refused = client.post("/imports", json=body)
    assert refused.status_code == 422
    assert said in refused.json()["detail"]


LAUNCHES = Path(__file__).parents[1] / "unit" / "export" / "launches"

PUBLISHED = {
    "llama3_8b_fp8.sh": ("h100:8", "llama-3-8b", {}),
    "llama3_8b_megatron_fsdp.sh": ("h100:8", "llama-3-8b", {}),
    "mixtral_8x7b.sh": ("h100:64", "mixtral-8x7b", {}),
    "llama2_7b_chat.sh": ("a100:8", "llama-2-7b", {"global_batch_size": 32}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_a_published_launch_runs_is_predicted_explained_and_compared_with_the_best(
    client: httpx.Client, name: str
) -> None:
    cluster, model, said = PUBLISHED[name]
    num_ranks = int(cluster.partition(":")[2])
    read = client.post("/imports", json={"text": (LAUNCHES / name).read_text(), "num_ranks": num_ranks}).json()
    assert read["model"]["name"] == read["model_size"]["name"] == model
    workload = {"seq_len": read["seq_len"], "global_batch_size": read["global_batch_size"]} | said
    job = {"model": read["model"], "cluster": cluster, "workload": workload, "stack": read["stack"]}
    today = client.post("/predictions", json=job | {"layout": read["layout"]}).json()["items"][0]
    assert today["label"] == read["label"]
    explained = client.post("/explanations", json=job | {"layout": read["layout"]}).json()
    assert explained["predicted"]["step_time_s"] == today["predicted"]["step_time_s"]
    asked = {"current": read["layout"], "format": read["format"], "limit": 3}
    compared = client.post("/predictions", json=job | asked).json()
    assert compared["current"]["candidate"]["predicted"] == today["predicted"]
    assert compared["current"]["best"]["change"]
    for item in compared["items"]:
        answer = client.post("/exports", json=job | {"layout": item["layout"], "format": read["format"]}).json()
        assert answer["unsaid"] == []


def test_a_trainer_is_not_proposed_what_it_cannot_be_told(client: httpx.Client) -> None:
    asked = JOB | {"format": "torchtitan", "limit": 200}
    levels = {item["layout"]["shard_level"] for item in client.post("/predictions", json=asked).json()["items"]}
    assert levels <= {"none", "parameters"}
    refused = client.post("/predictions", json=asked | {"space": {"shard_level": ["optimizer"]}})
    assert (refused.status_code, refused.json()["field"]) == (422, "space.shard_level")


def test_what_a_configuration_leaves_to_code_is_as_it_runs_today(client: httpx.Client) -> None:
    current = {"data_parallel_shard_degree": 8, "shard_level": "parameters", "compiled": True}
    asked = JOB | {"format": "deepspeed", "current": current, "limit": 5}
    items = client.post("/predictions", json=asked).json()["items"]
    assert items
    assert all(item["layout"]["compiled"] for item in items)


def test_a_format_beside_one_layout_is_refused(client: httpx.Client) -> None:
    refused = client.post("/predictions", json=JOB | {"layout": LAYOUT, "format": "deepspeed"})
    assert (refused.status_code, refused.json()["field"]) == (422, "format")
