"""A cluster's topology as pages show it."""

from __future__ import annotations

from dataclasses import replace

from api.dashboard.views.topology import TopologyShown
from autotuner.catalog.load import load_cluster
from autotuner.domain.layouts.words import layout_of
from tests.builders import big_job


def test_a_cluster_that_describes_neither_network_nor_wiring_shows_none() -> None:
    assert TopologyShown.of(load_cluster("h100:64")) is None


def test_the_links_that_limit_a_layout_are_said_and_drawn() -> None:
    described = replace(big_job(), cluster=load_cluster("h100:64@fat-tree-4to1"))
    shown = TopologyShown.under(layout_of("dp8 tp8 mb1 flash bf16"), described)
    assert shown is not None
    assert any("limited by" in sentence for sentence in shown.limits)
    assert "limits" in shown.network
    assert shown.node == ""
