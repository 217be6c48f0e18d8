"""Networks by name."""

from __future__ import annotations

import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.networks import load_preset, network_presets
from autotuner.core.errors import InvalidInput, NotFound


def test_every_preset_joins_the_nodes_of_a_cluster_and_says_its_source() -> None:
    for preset in network_presets():
        assert load_cluster(f"h100:512@{preset.name}").network == preset.joining(64)
        assert len(preset.source) > 20
        assert preset.date[:2] == "20"
        assert not preset.meaning.endswith(".")


def test_presets_have_the_sizes_that_their_sources_state() -> None:
    pod = load_preset("llama3-roce").joining(2048).tiers[1]
    assert (pod.nodes_per_switch * 8, pod.oversubscription) == (3072, 7.0)
    assert load_preset("alibaba-hpn").joining(64).tiers[0].nodes_per_switch * 8 == 1024
    assert load_preset("dgx-superpod").joining(64).num_rails == 8


def test_a_short_form_names_the_network_behind_an_at_sign() -> None:
    cluster = load_cluster("gb200:144@nvl72")
    assert cluster.network == load_preset("nvl72").joining(36)
    assert cluster.nvlink_domain == 72
    assert load_cluster("h100:64").network is None


def test_a_torus_has_the_lengths_that_the_nodes_allow() -> None:
    assert load_preset("torus-3d").joining(64).torus == (4, 4, 4)
    assert load_preset("torus-2d").joining(1).torus == ()
    with pytest.raises(InvalidInput, match=r"num_nodes = 7: .* torus-2d joins; nearest legal value: 6"):
        load_preset("torus-2d").joining(7)


def test_an_unknown_network_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="fat-tree"):
        load_preset("fat-tree-3to1")
