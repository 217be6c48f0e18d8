"""What the page on descriptions shows is what the service reads."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from autotuner.catalog.hardware import link_names
from bench.described_fields import PAGE, page

TEXT = PAGE.read_text()
BLOCKS: list[dict[str, Any]] = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)]
WORKLOAD = {"seq_len": 1024, "global_batch_size": 1152}
FEW = {"tensor_parallel_degree": [1], "pipeline_parallel_degree": [1], "micro_batch_size": [1], "recompute": ["none"]}
JOB: dict[str, Any] = {"model": "llama-demo", "cluster": "h100:8", "workload": WORKLOAD, "space": FEW, "limit": 1}


def is_cluster(block: dict[str, Any]) -> bool:
    return "accelerator" in block or ":" in str(block.get("base"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block.get("name", "by names")))
def test_every_description_of_the_page_is_predicted_with(client: httpx.Client, block: dict[str, Any]) -> None:
    answer = client.post("/predictions", json=JOB | {"cluster" if is_cluster(block) else "model": block})
    assert answer.status_code == 200, answer.text
    assert answer.json()["items"]


def test_the_page_shows_models_and_clusters_whole_and_in_short() -> None:
    kinds = {(is_cluster(block), "base" in block) for block in BLOCKS}
    assert len(kinds) == 4


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    assert page(TEXT) == TEXT, "python -m bench.described_fields writes them"


def test_the_page_names_every_link_of_the_catalog() -> None:
    assert [name for name in link_names() if f"`{name}`" not in TEXT] == []


def test_a_stored_description_may_be_written_in_short(client: httpx.Client) -> None:
    saved = client.put("/clusters/mine", json={"name": "mine", "accelerator": "h100", "num_nodes": 4})
    assert saved.status_code == 200
    assert saved.json()["accelerator"]["name"] == "h100-sxm"
    model = client.put("/models/mine", json={"base": "llama-3-8b", "name": "mine", "num_layers": 16})
    assert model.json()["num_layers"] == 16
    assert client.post("/predictions", json=JOB | {"model": "mine", "cluster": "mine"}).json()["items"]


def test_a_config_json_is_read_where_a_request_has_a_model(client: httpx.Client) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 256, "n_head": 4, "n_positions": 1024, "vocab_size": 5000}
    size = client.post("/predictions", json=JOB | {"model": config}).json()["model_size"]
    assert (size["name"], size["num_parameters"]) == ("gpt2", 3_122_176)


@pytest.mark.parametrize(
    ("body", "status", "field", "nearest"),
    [
        ({"cluster": {"accelerator": "h10", "num_nodes": 4}}, 404, None, "h100"),
        ({"cluster": {"accelerator": "h100", "num_nods": 4}}, 422, "cluster.num_nods", "num_nodes"),
        ({"cluster": {"accelerator": "h100", "num_nodes": "4"}}, 422, "cluster.num_nodes", None),
        (
            {"cluster": {"accelerator": {"base": "h100", "memory_bytes": -1}}},
            422,
            "cluster.accelerator.memory_bytes",
            1,
        ),
        ({"model": {"base": 7}}, 422, "model.base", None),
        ({"model": {"model_type": "lama"}}, 422, "model.model_type", None),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(
    client: httpx.Client, body: dict[str, Any], status: int, field: str | None, nearest: object
) -> None:
    answer = client.post("/predictions", json=JOB | body)
    problem = answer.json()
    assert answer.status_code == status, answer.text
    assert problem["field"] == field
    if nearest is not None:
        assert problem["nearest"] == nearest
