"""The picture of a cluster's network."""

from __future__ import annotations

from api.dashboard.charts.network import network_picture
from autotuner.catalog.load import load_cluster


def test_tiers_that_join_parts_of_the_cluster_are_rows_with_what_leaves_them() -> None:
    drawn = network_picture(load_cluster("h100:512@fat-tree-4to1"))
    assert "spine: joins all 64 nodes" in drawn
    assert "leaf: 16 switches, 4 nodes each" in drawn
    assert "passes up 1/4: 12.5 GB/s a rank" in drawn
    assert "64 nodes of 8 h100-sxm" in drawn


def test_the_link_that_limits_a_layout_stands_out_with_its_axes() -> None:
    drawn = network_picture(load_cluster("h100:512@fat-tree-4to1"), {"leaf uplinks": ["shard", "replicate"]})
    assert "limits shard and replicate" in drawn
    assert drawn.count("limit-tick") == 4  # a line from each leaf that is drawn


def test_of_many_switches_the_first_are_drawn_on_a_phone_too() -> None:
    cluster = load_cluster("h100:24576@llama3-roce")
    for width in (350, 560):
        drawn = network_picture(cluster, width=width)
        assert "pod: 8 switches, 384 nodes each" in drawn
        assert drawn.count("<rect") < 40


def test_a_torus_is_a_plane_of_its_nodes_with_all_lengths_said() -> None:
    drawn = network_picture(load_cluster("h100:512@torus-3d"), {"torus dimension 1": ["pipeline"]})
    assert "torus of 4 x 4 x 4 nodes of 8" in drawn
    assert drawn.count("<circle") == 16
    assert "limits pipeline" in drawn


def test_a_network_without_tiers_is_one_switch() -> None:
    assert "one switch" in network_picture(load_cluster("h100:64@non-blocking"))
