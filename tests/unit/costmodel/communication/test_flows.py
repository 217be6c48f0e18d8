from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from itertools import product

import numpy as np
import pytest

from autotuner.core.choices import RankPlacement
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.network import Network, Tier
from autotuner.core.placement import Spread
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import group_of
from tests.builders import cpu_cluster, h100_cluster
from tests.unit.costmodel.communication.flows import AxisTraffic, Streams, Wires, fair_rates

# ---------------------------------------------------------------- closed forms
LEAF, SPINE = Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0), Tier(name="spine", nodes_per_switch=32)
NETWORKS = (
    Network(name="thin twice", tiers=(LEAF, replace(SPINE, oversubscription=3.0))),
    Network(name="rails", tiers=(replace(LEAF, nodes_per_switch=16, oversubscription=4.0), SPINE), num_rails=8),
    Network(name="torus", torus=(8, 4, 4)),
)
EVEN = [Spread(*pair) for pair in ((4, 8), (16, 1), (64, 1), (16, 8), (8, 64), (64, 8), (32, 32), (4, 256), (2, 512))]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTimes:
    """Seconds per byte of an axis whose groups are all at work at once."""

    ring: float
    send: float
    all_to_all: float


def group_between_nodes(spread: Spread, cluster: Cluster, *, pxn: bool = True, placement: RankPlacement) -> Group:
    """The cost model's group, with links inside nodes that take no time."""
    x = LayoutColumns.from_layouts([Layout(rank_placement=placement, pxn=pxn)])
    group = group_of(np.array([spread.num_ranks]), np.array([spread.stride]), cluster, x)
    return replace(group, intra_node_link=replace(group.intra_node_link, bandwidth_bytes_per_s=1e30))


def closed_times(spread: Spread, cluster: Cluster, placement: RankPlacement) -> GroupTimes:
    """What the cost model's closed forms say."""
    group = group_between_nodes(spread, cluster, placement=placement)
    return GroupTimes(
        ring=float(group.ring_s_per_byte[0]) * spread.num_ranks / (spread.num_ranks - 1),
        send=float(group.send_s_per_byte[0]),
        all_to_all=float(group.all_to_all_s_per_byte()[0]),
    )


def followed_times(spread: Spread, wires: Wires, placement: RankPlacement) -> GroupTimes:
    """What the slowest flow takes where every one is followed."""
    traffic = AxisTraffic(wires=wires, spread=spread, placement=placement)
    return GroupTimes(
        ring=slowest_s_per_byte(traffic.rings(), wires),
        send=slowest_s_per_byte(traffic.sends(), wires),
        all_to_all=slowest_s_per_byte(traffic.all_to_alls(), wires),
    )


def slowest_s_per_byte(streams: Streams, wires: Wires) -> float:
    """Of max-min fair shares."""
    return 1 / float(fair_rates(streams, wires.capacities()).min())


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("placement", list(RankPlacement), ids=lambda placement: placement.label)
def test_rings_all_to_alls_and_sends_take_as_long_as_when_every_flow_is_followed(
    network: Network, placement: RankPlacement
) -> None:
    cluster = h100_cluster(num_nodes=128, network=network)
    wires = Wires(cluster)
    for spread in EVEN:
        found = closed_times(spread, cluster, placement)
        followed = followed_times(spread, wires, placement)
        # the same but for rounding; 1e-20 s stands for a group inside a node, which takes no time here
        assert astuple(found) == pytest.approx(astuple(followed), rel=1e-9, abs=1e-20), spread


def test_a_ring_has_no_more_ports_than_on_the_node_where_it_has_fewest_ranks() -> None:
    cluster = h100_cluster(num_nodes=75, network=replace(NETWORKS[0], tiers=(SPINE,)))
    for spread in (Spread(25, 1), Spread(75, 1), Spread(15, 4), Spread(12, 1), Spread(6, 4)):
        found = closed_times(spread, cluster, RankPlacement.BLOCK).ring
        followed = followed_times(spread, Wires(cluster), RankPlacement.BLOCK).ring
        assert found == pytest.approx(followed, rel=1e-9), spread  # the same but for rounding


@pytest.mark.parametrize(("pxn", "size"), list(product((False, True), (32, 128, 256))))
def test_traffic_between_rails_uses_nvlink_or_the_spine(pxn: bool, size: int) -> None:
    cluster = h100_cluster(num_nodes=64, network=NETWORKS[1])
    wires, spread = Wires(cluster, pxn=pxn), Spread(size, 1)
    followed = slowest_s_per_byte(AxisTraffic(wires=wires, spread=spread).all_to_alls(), wires)
    group = group_between_nodes(spread, cluster, pxn=pxn, placement=RankPlacement.BLOCK)
    group = replace(group, relayed=0.0)  # NVLink takes no time here
    assert float(group.all_to_all_s_per_byte()[0]) == pytest.approx(followed, rel=1e-9)


@pytest.mark.parametrize("placement", list(RankPlacement), ids=lambda placement: placement.label)
def test_rings_of_gloo_are_followed_rank_by_rank(placement: RankPlacement) -> None:
    network = Network(name="thin", tiers=(LEAF,), ports_per_node=1)
    cluster = replace(cpu_cluster(num_cores=4), num_nodes=32, network=network)
    wires = Wires(cluster)
    for spread in (Spread(4, 1), Spread(128, 1), Spread(16, 8), Spread(8, 4), Spread(32, 2), Spread(64, 2)):
        streams = AxisTraffic(wires=wires, spread=spread, placement=placement, sorts_ring=False).rings()
        around = closed_times(spread, cluster, placement).ring
        followed = slowest_s_per_byte(streams, wires)
        assert around == pytest.approx(followed, rel=1e-9, abs=1e-20), spread


# ---------------------------------------------------------------- filling
def streams(*paths: dict[int, float]) -> Streams:
    entries = [(stream, link, weight) for stream, path in enumerate(paths) for link, weight in path.items()]
    stream, link, weight = zip(*entries, strict=True)
    return Streams(
        num_streams=len(paths), stream=np.array(stream), link=np.array(link), weight=np.array(weight, dtype=np.float64)
    )


def test_streams_share_links_equally_by_how_often_they_pass_them() -> None:
    # a long stream over both links, one over each; the second link is narrow
    rates = fair_rates(streams({0: 1, 1: 1}, {0: 1}, {1: 1}), np.array([10.0, 4.0]))
    assert rates.tolist() == pytest.approx([2, 8, 2])
    assert fair_rates(streams({0: 2}, {0: 1}), np.array([9.0])).tolist() == pytest.approx([3, 3])
    assert fair_rates(streams({0: 1}, {}), np.array([5.0])).tolist() == [5, np.inf]


def test_no_link_passes_more_than_it_can_and_every_stream_meets_a_full_one() -> None:
    draw = np.random.default_rng(1)
    found = streams(*({int(link): 1.0 for link in draw.choice(30, 4, replace=False)} for _ in range(200)))
    capacities = draw.uniform(1, 10, 30)
    rates = fair_rates(found, capacities)
    passed = np.bincount(found.link, weights=rates[found.stream], minlength=30)
    assert (passed <= capacities * (1 + 1e-9)).all()
    full = passed >= capacities * (1 - 1e-9)
    assert set(found.stream[full[found.link]]) == set(range(200))
