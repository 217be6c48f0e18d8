"""The cost model's closed forms beside a simulation of every flow, for 1,024 ranks; ``bench.topology_gap`` has more."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from autotuner.costmodel.columns import LayoutColumns
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.process_groups import group_of
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.crossings import Spread
from autotuner.domain.jobs.network import Network, Tier
from autotuner.domain.layouts.choice import RankPlacement
from autotuner.domain.layouts.layout import Layout
from autotuner.flows.filling import fair_rates
from autotuner.flows.streams import Streams
from autotuner.flows.traffic import AxisTraffic
from autotuner.flows.wires import Wires
from tests.builders import cpu_cluster, h100_cluster

LEAF, SPINE = Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0), Tier(name="spine", nodes_per_switch=32)
NETWORKS = (
    Network(name="thin twice", tiers=(LEAF, replace(SPINE, oversubscription=3.0))),
    Network(name="rails", tiers=(replace(LEAF, nodes_per_switch=16, oversubscription=4.0), SPINE), num_rails=8),
    Network(name="torus", torus=(8, 4, 4)),
)
EVEN = [Spread(*pair) for pair in ((4, 8), (16, 1), (64, 1), (16, 8), (8, 64), (64, 8), (32, 32), (4, 256), (2, 512))]


def closed(spread: Spread, cluster: Cluster, *, pxn: bool = True, placement: RankPlacement) -> Group:
    """The group with links inside nodes that take no time."""
    x = LayoutColumns.from_layouts([Layout(rank_placement=placement, pxn=pxn)])
    group = group_of(np.array([spread.num_ranks]), np.array([spread.stride]), cluster, x)
    return replace(group, intra_node_link=replace(group.intra_node_link, bandwidth_bytes_per_s=1e30))


def slowest_s_per_byte(streams: Streams, wires: Wires) -> float:
    return 1 / float(fair_rates(streams, wires.capacities()).min())


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("placement", list(RankPlacement), ids=lambda placement: placement.label)
def test_rings_all_to_alls_and_sends_take_as_long_as_when_every_flow_is_followed(
    network: Network, placement: RankPlacement
) -> None:
    cluster = h100_cluster(num_nodes=128, network=network)
    wires = Wires(cluster)
    for spread in EVEN:
        traffic = AxisTraffic(wires=wires, spread=spread, placement=placement)
        group = closed(spread, cluster, placement=placement)
        around = float(group.ring_s_per_byte[0]) * spread.num_ranks / (spread.num_ranks - 1)
        found = around, float(group.send_s_per_byte[0]), float(group.all_to_all_s_per_byte()[0])
        followed = [slowest_s_per_byte(one, wires) for one in (traffic.rings(), traffic.sends(), traffic.all_to_alls())]
        # the same but for rounding; 1e-20 s stands for a group inside a node, which takes no time here
        assert found == pytest.approx(followed, rel=1e-9, abs=1e-20), spread


@pytest.mark.parametrize(("pxn", "size"), list(product((False, True), (32, 128, 256))))
def test_what_other_rails_carry_is_relayed_by_nvlink_or_goes_over_the_spine(pxn: bool, size: int) -> None:
    cluster = h100_cluster(num_nodes=64, network=NETWORKS[1])
    wires, spread = Wires(cluster, pxn=pxn), Spread(size, 1)
    followed = slowest_s_per_byte(AxisTraffic(wires=wires, spread=spread).all_to_alls(), wires)
    group = closed(spread, cluster, pxn=pxn, placement=RankPlacement.BLOCK)
    group = replace(group, relayed=0.0)  # NVLink takes no time here
    assert float(group.all_to_all_s_per_byte()[0]) == pytest.approx(followed, rel=1e-9)


@pytest.mark.parametrize("placement", list(RankPlacement), ids=lambda placement: placement.label)
def test_rings_of_gloo_are_followed_rank_by_rank(placement: RankPlacement) -> None:
    network = Network(name="thin", tiers=(LEAF,), ports_per_node=1)
    cluster = replace(cpu_cluster(num_cores=4), num_nodes=32, network=network)
    wires = Wires(cluster)
    for spread in (Spread(4, 1), Spread(128, 1), Spread(16, 8), Spread(8, 4), Spread(32, 2), Spread(64, 2)):
        streams = AxisTraffic(wires=wires, spread=spread, placement=placement, sorts_ring=False).rings()
        around = float(closed(spread, cluster, placement=placement).ring_s_per_byte[0])
        around *= spread.num_ranks / (spread.num_ranks - 1)
        followed = slowest_s_per_byte(streams, wires)
        assert around == pytest.approx(followed, rel=1e-9, abs=1e-20), spread
