"""Networks: which tiers fit on each other, and which nodes a torus joins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotuner.core.jobs.network import Network, Tier, torus_lengths
from autotuner.errors import InvalidInput
from tests.builders import h100_cluster


def test_a_switch_has_whole_switches_below_it() -> None:
    tiers = (Tier(name="leaf", nodes_per_switch=4), Tier(name="spine", nodes_per_switch=10))
    with pytest.raises(InvalidInput, match="multiple of the 4 nodes"):
        Network(name="ours", tiers=tiers)


def test_a_tier_that_passes_up_more_than_it_gets_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"nearest legal value: 1.0"):
        Tier(name="leaf", nodes_per_switch=4, oversubscription=0.5)


def test_a_torus_joins_the_product_of_its_lengths() -> None:
    torus = Network(name="torus", torus=(2, 2))
    assert replace(h100_cluster(num_nodes=4), network=torus).network == torus
    with pytest.raises(InvalidInput, match="a torus of 2 x 2 joins 4 nodes"):
        replace(h100_cluster(num_nodes=8), network=torus)


def test_a_network_says_the_oversubscription_of_its_cluster() -> None:
    with pytest.raises(InvalidInput, match="must be left out"):
        replace(h100_cluster(num_nodes=4), network=Network(name="ours"), oversubscription=2.0)


@pytest.mark.parametrize(
    ("num_nodes", "lengths"), [(64, (4, 4, 4)), (128, (4, 4, 8)), (12, (2, 2, 3)), (7, ()), (4, ()), (1, ())]
)
def test_lengths_of_a_torus_are_as_equal_as_the_number_of_nodes_allows(
    num_nodes: int, lengths: tuple[int, ...]
) -> None:
    assert torus_lengths(num_nodes, 3) == lengths
    assert not lengths or math.prod(lengths) == num_nodes


def test_a_resized_cluster_has_a_torus_of_its_own_nodes() -> None:
    cluster = replace(h100_cluster(num_nodes=8), network=Network(name="torus", torus=(2, 2, 2)))
    sizes = (16, 4, 3, 1)
    networks = [cluster.resized(num_nodes=num_nodes).network for num_nodes in sizes]
    assert [network and network.torus for network in networks] == [(2, 2, 4), (2, 2), (3,), ()]


def test_a_resized_cluster_has_the_switches_that_it_had() -> None:
    network = Network(name="ours", tiers=(Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0),))
    assert replace(h100_cluster(num_nodes=8), network=network).resized(num_nodes=2).network == network
