"""Models and clusters that people write down in short."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.catalog.hardware import load_accelerator, load_cluster, load_link
from autotuner.catalog.models import load_model
from autotuner.catalog.named import cluster_described, model_described
from autotuner.catalog.networks import load_preset
from autotuner.core.cluster import Cluster
from autotuner.core.codec import to_plain
from autotuner.core.errors import InvalidInput, NotFound
from autotuner.core.model import TransformerSpec
from tests.builders import cpu_cluster, tiny_model


def test_what_is_written_whole_is_read_as_it_is() -> None:
    assert model_described(to_plain(tiny_model())) == tiny_model()
    assert cluster_described(to_plain(cpu_cluster())) == cpu_cluster()


def test_a_model_or_part_of_the_catalog_with_changed_fields_is_that_but_for_these_and_not_called_like_it() -> None:
    base = load_model("llama-3-8b")
    assert model_described({"base": "llama-3-8b", "num_layers": 16}, "mine") == replace(
        base, name="mine", num_layers=16
    )
    base = load_model("mixtral-8x7b")
    assert base.experts is not None
    changed = model_described({"base": "mixtral-8x7b", "experts": {"experts_per_token": 4}})
    assert changed.experts == replace(base.experts, experts_per_token=4)
    assert model_described({"base": "mixtral-8x7b", "experts": None}).experts is None
    assert model_described({"base": "llama-3-8b", "num_layers": 16}).name == "llama-3-8b (changed)"
    assert cluster_described({"base": "h100:8", "oversubscription": 2.0}).name == "h100:8 (changed)"


def test_a_config_json_is_read_by_the_same_function() -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert model_described(config, "mine").num_parameters == 124_439_808
    assert model_described(config | {"_name_or_path": "openai/gpt2/"}).name == "gpt2"
    assert model_described(config).name == "gpt2"


def test_a_cluster_of_named_accelerators_and_links_has_what_is_usual_around_them() -> None:
    usual = load_cluster("h100:32")
    written = {"accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr200"}
    expected = replace(usual, name="mine", inter_node_link=load_link("ndr200"))
    assert cluster_described(written, "mine") == expected
    assert cluster_described({"accelerator": "h100"}).world_size == 8
    assert cluster_described(written | {"accelerators_per_node": 4}).world_size == 16
    assert cluster_described({"accelerator": "gb200", "num_nodes": 32}).nvlink_domain == 72


def test_a_part_of_a_cluster_starts_from_a_name_or_from_what_is_usual_and_changes_fields() -> None:
    written = {"accelerator": {"base": "h100", "memory_bytes": 64 * 10**9}, "num_nodes": 2}
    cluster = cluster_described(written | {"intra_node_link": {"base": "nvlink3", "efficiency": 0.5}})
    assert cluster.accelerator == replace(load_accelerator("h100"), memory_bytes=64 * 10**9)
    assert cluster.intra_node_link == replace(load_link("nvlink3"), efficiency=0.5)
    cluster = cluster_described({"accelerator": "h100", "num_nodes": 2, "inter_node_link": {"efficiency": 0.6}})
    assert cluster.inter_node_link == replace(load_link("ndr400"), efficiency=0.6)


@pytest.mark.parametrize(
    ("document", "nearest"),
    [
        ({"accelerator": "h10", "num_nodes": 4}, "h100"),
        ({"accelerator": "h100", "num_nodes": 4, "inter_node_link": "ndr40"}, "ndr400"),
        ({"base": "h10:8"}, "h100"),
    ],
)
def test_a_name_that_the_catalog_lacks_is_told_with_the_nearest(document: dict[str, Any], nearest: str) -> None:
    with pytest.raises(NotFound) as caught:
        cluster_described(document)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"accelerator": "h100", "num_nodes": 0}, "cluster.num_nodes"),
        ({"accelerator": "h100", "nodes": 4}, "cluster.nodes"),
        ({"accelerator": "h100", "num_nodes": "4"}, "cluster.num_nodes"),
        ({"accelerator": {"base": "h100", "memory": 1}, "num_nodes": 4}, "cluster.accelerator.memory"),
        ({"num_nodes": 4}, "cluster.name"),
        ({"base": 7}, "base"),
        ([], "cluster"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(document: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cluster_described(document)
    assert caught.value.field == field


SOMETHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(("h100", "h100:8", "ndr400", "llama-3-8b", "h100:x", "", "h100:99999999x99999999"))
FIELDS = (
    "base",
    "accelerator",
    "num_nodes",
    "accelerators_per_node",
    "inter_node_link",
    "name",
    "experts",
    "num_layers",
)
WRITTEN = st.dictionaries(
    st.sampled_from(FIELDS), NAMES | SOMETHING | st.dictionaries(st.sampled_from(FIELDS), NAMES | SOMETHING), max_size=5
)


@given(SOMETHING | WRITTEN)
def test_any_json_is_a_model_and_a_cluster_or_refused(document: Any) -> None:
    with suppress(InvalidInput, NotFound):
        assert isinstance(model_described(document), TransformerSpec)
    with suppress(InvalidInput, NotFound):
        assert isinstance(cluster_described(document), Cluster)


def test_a_cluster_names_its_network_whose_changes_give_it_another_name() -> None:
    named = cluster_described({"accelerator": "h100", "num_nodes": 8, "network": "torus-3d"})
    assert named.network == load_preset("torus-3d").joining(8)
    changed = cluster_described({"base": "h100:64@fat-tree-2to1", "network": {"num_rails": 8}})
    assert changed.network == replace(load_preset("fat-tree-2to1").joining(8), num_rails=8)
    assert cluster_described({"base": "h100:64@fat-tree-2to1", "network": None}).network is None
    pod = {"accelerator": "h100", "num_nodes": 8, "network": {"base": "dgx-superpod", "adds": False}}
    expected = replace(load_preset("dgx-superpod").joining(8), name="dgx-superpod (changed)", adds=False)
    assert cluster_described(pod).network == expected
    written: dict[str, Any] = {"accelerator": "b200", "num_nodes": 18, "accelerators_per_node": 4, "network": "nvl72"}
    assert cluster_described(written).nvlink_domain == 72
    assert cluster_described(written | {"nvlink_domain": 36}).nvlink_domain == 36
