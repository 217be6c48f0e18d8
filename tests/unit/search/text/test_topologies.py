"""Networks and wirings in sentences."""

from __future__ import annotations

from dataclasses import replace

from autotuner.catalog.load import load_cluster
from autotuner.catalog.topology.applied import on_cluster
from autotuner.catalog.topology.presets import load_network
from autotuner.catalog.topology.read import read_topology
from autotuner.domain.jobs.network import Network
from autotuner.search.text.topologies import cluster_said, described_said, network_said, numbers, topology_said
from tests.unit.catalog.topology import published


def test_tiers_say_what_they_pass_up_and_rails_what_they_join() -> None:
    said = list(network_said(load_network("alibaba-hpn", 64)))
    assert said[0] == "segment: 128 nodes below a switch, which passes up all that they send"
    assert said[1] == "pod: 1,920 nodes below a switch, which passes up 1/15 of it, 1.8 µs later than below"
    assert any(sentence.startswith("8 rails") for sentence in said)
    assert any("meet by chance" in sentence for sentence in said)


def test_a_torus_says_its_lengths_and_a_single_switch_that_it_is_one() -> None:
    assert next(network_said(Network(name="t", torus=(2, 4)))) == ("a torus of 2 x 4 nodes, each joined to 3 others")
    assert list(network_said(Network(name="one"))) == ["one switch joins all nodes"]


def test_a_cluster_says_what_is_left_of_a_port_above_each_thin_tier() -> None:
    said = list(cluster_said(load_cluster("h100:4096@llama3-roce")))
    assert said[-1] == "7.14 GB/s of that leave the 384 nodes below a switch of the tier pod"


def test_groups_of_a_node_say_the_link_that_limits_them() -> None:
    cluster = on_cluster(read_topology(published.A100_PAIRS), load_cluster("a100:4x4"))
    said = described_said(cluster)
    assert "groups of 2 neighbours in a node are limited by nvlink3, 300 GB/s" in said
    assert said[-1].endswith("limited by the link between sockets, 16 GB/s for all that cross at once")


def test_ports_are_told_with_what_they_are_near_to_and_all_that_share_them() -> None:
    topology = read_topology(published.DGX_A100)
    assert "port mlx5_0 is nearest to 0-1 over PCIe switches alone" in topology_said(topology, None)
    shared = replace(load_cluster("h100:16"), network=Network(name="two ports", ports_per_node=2))
    assert "a rank sends 12.5 GB/s to another node where all ranks send" in described_said(shared)


def test_numbers_that_follow_each_other_are_a_range() -> None:
    assert numbers((6, 0, 1, 2)) == "0-2, 6"
    assert numbers(()) == "none in particular"
