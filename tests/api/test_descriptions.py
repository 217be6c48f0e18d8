from __future__ import annotations

from dataclasses import replace

import httpx

from autotuner.core.codec import to_plain
from tests.builders import cpu_cluster, tiny_model

GPT2_CONFIG = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}


def test_a_stored_model_is_read_listed_and_used_by_its_name(client: httpx.Client) -> None:
    saved = client.put("/models/tiny", json=to_plain(tiny_model()))
    assert saved.status_code == 200
    assert client.get("/models/tiny").json() == saved.json()
    assert [model["name"] for model in client.get("/models").json()["items"]] == ["tiny"]
    body = {"model": "tiny", "cluster": to_plain(cpu_cluster()), "workload": {"seq_len": 64, "global_batch_size": 8}}
    assert client.post("/sweeps", json=body).json()["model"] == "tiny"


def test_saving_an_equal_model_again_changes_nothing(client: httpx.Client) -> None:
    first = client.put("/models/tiny", json=to_plain(tiny_model()))
    again = client.put("/models/tiny", json=to_plain(tiny_model()))
    assert (again.status_code, again.json()) == (200, first.json())


def test_a_hugging_face_config_is_stored_under_the_name_in_the_path(client: httpx.Client) -> None:
    saved = client.put("/models/my-gpt2", json=GPT2_CONFIG).json()
    assert (saved["name"], saved["num_layers"], saved["hidden_size"]) == ("my-gpt2", 12, 768)


def test_a_forgotten_model_is_not_found_and_its_name_is_free(client: httpx.Client) -> None:
    saved = client.put("/models/tiny", json=to_plain(tiny_model()))
    assert client.delete("/models/tiny").json() == saved.json()
    missing = client.delete("/models/tiny")
    assert (missing.status_code, client.get("/models").json()["items"]) == (404, [])
    assert client.put("/models/tiny", json=to_plain(tiny_model(num_layers=5))).status_code == 200


def test_a_name_of_the_catalog_is_given_to_nobody(client: httpx.Client) -> None:
    model = client.put("/models/llama-3-70b", json=to_plain(tiny_model(name="llama-3-70b")))
    assert (model.status_code, "my-llama-3-70b" in model.json()["detail"]) == (409, True)
    for name in ("h100", "h100:64", "h100-sxm:7x9", "cpu:2"):
        cluster = client.put(f"/clusters/{name}", json=to_plain(replace(cpu_cluster(), name=name)))
        assert (cluster.status_code, "the catalog" in cluster.json()["detail"]) == (409, True), name
    assert client.get("/models/llama-3-70b").json()["num_layers"] == 80


def test_a_config_of_an_unknown_kind_is_refused(client: httpx.Client) -> None:
    refused = client.put("/models/other", json={"model_type": "perceiver"})
    assert (refused.status_code, refused.json()["field"]) == (422, "model_type")


def test_a_name_in_the_body_that_is_not_the_path_is_refused(client: httpx.Client) -> None:
    refused = client.put("/models/other", json=to_plain(tiny_model()))
    assert (refused.status_code, refused.json()["field"], refused.json()["nearest"]) == (422, "name", "other")


def test_a_catalog_model_is_read_like_a_stored_one(client: httpx.Client) -> None:
    assert client.get("/models/llama-3-8b").json()["num_layers"] == 32


def test_a_catalog_cluster_is_read_by_accelerator_and_count(client: httpx.Client) -> None:
    cluster = client.get("/clusters/h100:64").json()
    assert cluster["num_nodes"] * cluster["accelerators_per_node"] == 64


def test_a_stored_cluster_is_read_listed_and_used_by_its_name(client: httpx.Client) -> None:
    saved = client.put("/clusters/two-cores", json=to_plain(replace(cpu_cluster(2), name="two-cores")))
    assert saved.status_code == 200
    assert client.get("/clusters/two-cores").json() == saved.json()
    assert [cluster["name"] for cluster in client.get("/clusters").json()["items"]] == ["two-cores"]
