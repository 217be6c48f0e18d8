"""The picture of a cluster's network."""

from __future__ import annotations

from api.dashboard.charts.network import network_picture
from autotuner.catalog.load import load_cluster
from tests.api.dashboard.charts.drawn import each, number, texts


def test_tiers_that_join_parts_of_the_cluster_are_rows_with_what_leaves_them() -> None:
    drawn = network_picture(load_cluster("h100:512@fat-tree-4to1"))
    assert "spine: joins all 64 nodes" in drawn
    assert "leaf: 16 switches, 4 nodes each" in drawn
    assert "passes up 1/4: 12.5 GB/s a rank" in drawn
    assert "64 nodes of 8 h100-sxm" in drawn


def test_the_link_that_limits_a_layout_stands_out_with_its_axes() -> None:
    drawn = network_picture(load_cluster("h100:512@fat-tree-4to1"), {"leaf uplinks": ["shard", "replicate"]})
    assert "limits shard and replicate" in drawn
    leaves = {one.attrib["x1"] for one in each(drawn, "limit-tick")}
    assert len(leaves) == 4  # a line from each that is drawn


def test_of_many_switches_the_first_are_drawn_on_a_phone_too() -> None:
    cluster = load_cluster("h100:24576@llama3-roce")
    for width in (350, 560):
        drawn = network_picture(cluster, width=width)
        assert "pod: 8 switches, 384 nodes each" in drawn
        assert drawn.count("<rect") < 40


def test_a_torus_is_a_plane_of_its_nodes_with_all_lengths_said() -> None:
    drawn = network_picture(load_cluster("h100:512@torus-3d"), {"torus dimension 1": ["pipeline"]})
    assert "torus of 4 × 4 × 4 nodes of 8, one plane of 4 shown" in drawn
    assert drawn.count("<circle") == 16
    assert "limits pipeline" in drawn


def test_a_network_without_tiers_is_one_switch() -> None:
    assert "one switch" in network_picture(load_cluster("h100:64@non-blocking"))


def test_lines_break_where_words_stand() -> None:
    drawn = network_picture(load_cluster("h100:512@fat-tree-4to1"), width=560)
    (said,) = (one for one in texts(drawn) if (one.text or "").startswith("64 nodes"))
    base = number(said, "y")
    crossing = [
        one
        for one in each(drawn, "axis")
        if number(one, "x1") < 100 and number(one, "y1") < base - 6 < number(one, "y2")
    ]
    assert crossing == []
    assert len({one.attrib["x1"] for one in each(drawn, "axis")}) == 16  # each node that is drawn has its line
