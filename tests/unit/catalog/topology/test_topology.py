"""Clusters as files describe their networks and nodes."""

from __future__ import annotations

import pytest

from autotuner.catalog.hardware import load_cluster, load_link
from autotuner.catalog.topology.read import read_topology
from autotuner.catalog.topology.topology import merged, on_cluster
from autotuner.core.errors import InvalidInput
from tests.unit.catalog.topology import published


def test_a_node_and_a_network_may_come_from_two_files() -> None:
    both = merged([read_topology(published.DGX_A100), read_topology(published.SLURM_TREE)])
    cluster = on_cluster(both, load_cluster("a100:64"))
    assert cluster.network is not None
    assert cluster.wiring is not None
    assert cluster.network.tiers[0].nodes_per_switch == 6
    assert cluster.intra_node_link == load_link("nvlink3")


def test_two_files_that_say_the_same_part_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only one file may"):
        merged([read_topology(published.DGX_A100), read_topology(published.NERSC_A100)])


def test_accelerators_that_share_few_ports_share_their_rate() -> None:
    text = "GPU0 GPU1 NIC0\nGPU0 X NV18 PHB\nGPU1 NV18 X PHB\nNIC0 PHB PHB X"
    cluster = on_cluster(read_topology(text), load_cluster("h100:4x2"))
    assert cluster.network is not None
    assert cluster.network.ports_per_node == 1


def test_ports_are_as_fast_as_the_file_says() -> None:
    cluster = on_cluster(read_topology(published.IBM_H100), load_cluster("h100:16"))
    assert cluster.inter_node_link.bandwidth_bytes_per_s == 25e9
    assert cluster.inter_node_link.name == "200 Gbit/s ports"


def test_a_mesh_of_nvlinks_and_plain_pcie_change_the_link_within_a_node() -> None:
    mesh = on_cluster(read_topology(published.NERSC_A100), load_cluster("a100:2x4"))
    assert mesh.intra_node_link.mesh_peers == 3
    plain = read_topology("GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X")
    assert on_cluster(plain, load_cluster("a100:2x2")).intra_node_link == load_link("pcie4")


def test_blocks_are_nvlink_domains_where_the_accelerator_has_domains_of_nodes() -> None:
    blocks = read_topology(published.SLURM_BLOCKS.replace("18,72", "18,36"))
    assert on_cluster(blocks, load_cluster("gb200:288")).nvlink_domain == 72
    assert on_cluster(blocks, load_cluster("h100:512")).nvlink_domain is None


def test_a_file_of_other_nodes_or_too_few_of_them_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nodes of 4 accelerators; nearest legal value: 4"):
        on_cluster(read_topology(published.NERSC_A100), load_cluster("a100:16"))
    with pytest.raises(InvalidInput, match="num_nodes = 32: must be at most the 18 nodes"):
        on_cluster(read_topology(published.SLURM_TREE), load_cluster("h100:256"))
