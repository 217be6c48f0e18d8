"""The picture of what joins the accelerators of a node."""

from __future__ import annotations

from api.dashboard.charts.node_wiring import node_wiring_picture
from autotuner.catalog.load import load_cluster
from autotuner.catalog.topology.applied import on_cluster
from autotuner.catalog.topology.read import read_topology
from tests.unit.catalog.topology import published


def test_each_way_of_being_joined_is_a_row_with_its_rate() -> None:
    drawn = node_wiring_picture(on_cluster(read_topology(published.DGX_A100), load_cluster("a100:16")))
    for said in ("nvlink3: 300 GB/s", "PCIe switches", "sockets or NUMA nodes", "8 ports"):
        assert said in drawn
    assert drawn.count('class="node"') == 8
    assert "<title>mlx5_7</title>" in drawn


def test_what_limits_a_layout_inside_a_node_stands_out() -> None:
    cluster = on_cluster(read_topology(published.A100_PAIRS), load_cluster("a100:4x4"))
    assert "limit-tick" not in node_wiring_picture(cluster)
    limited = node_wiring_picture(cluster, {"the link between sockets": ["tensor"]})
    assert "limits tensor" in limited
    assert "limit-tick" in limited


def test_a_node_of_which_nothing_is_described_is_joined_by_its_link() -> None:
    assert "nvlink4: 450 GB/s" in node_wiring_picture(load_cluster("h100:8"), width=350)
