"""What collectives take, flat and on two levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.catalog.hardware import load_cluster
from autotuner.core.choices import (
    CollectiveAlgorithm,
    CollectiveHierarchy,
    CollectiveProtocol,
    RankPlacement,
    ShardLevel,
)
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.link import Link, MeasuredCollective
from autotuner.core.network import Network
from autotuner.core.stages import num_pieces
from autotuner.core.units import MIB
from autotuner.costmodel.communication import collectives
from autotuner.costmodel.communication.collectives import (
    all_gather_s,
    all_reduce_s,
    data_all_gather_s,
    data_all_reduce_s,
    data_reduce_scatter_s,
    reduce_scatter_s,
    without_starts,
)
from autotuner.costmodel.communication.group import MULTICAST_S, OWN_SHARD_COST, TREE_WAIT, Group
from autotuner.costmodel.communication.layout_groups import group_of, replicate_group, shard_group
from tests.builders import cpu_cluster, h100_cluster


def all_reduces(*lines: tuple[int, float, float]) -> tuple[MeasuredCollective, ...]:
    return tuple(
        MeasuredCollective(kind="all_reduce", num_ranks=ranks, start_s=start_s, s_per_byte=slope)
        for ranks, start_s, slope in lines
    )


def timed_s(num_ranks: int, num_bytes: float, *lines: tuple[int, float, float]) -> float:
    cluster = cpu_cluster()
    cluster = replace(cluster, intra_node_link=replace(cluster.intra_node_link, measured=all_reduces(*lines)))
    group = group_of(np.array([num_ranks]), np.array([1]), cluster)
    return float(all_reduce_s(np.array([num_bytes]), group)[0])


def test_a_timed_collective_takes_its_start_and_bytes_on_lines_between_and_beyond_the_groups_that_were_timed() -> None:
    assert timed_s(2, 1e6, (2, 1e-3, 1e-9), (4, 3e-3, 2e-9)) == pytest.approx(2e-3)
    assert timed_s(3, 0.0, (2, 1e-3, 1e-9), (4, 3e-3, 2e-9)) == pytest.approx(2e-3)
    assert timed_s(7, 1e6, (4, 3e-3, 2e-9)) == pytest.approx(2 * (3e-3 + 2e-3))
    assert timed_s(1, 1e6, (2, 1e-3, 1e-9)) == 0.0


def test_measured_collectives_count_by_bytes_and_kind_and_others_by_their_link() -> None:
    cluster = cpu_cluster()
    link = replace(cluster.intra_node_link, measured=all_reduces((2, 1e-3, 1e-9)))
    group = group_of(np.array([2]), np.array([1]), replace(cluster, intra_node_link=link))
    assert float(all_reduce_s(np.array([1e6]), without_starts(group))[0]) == pytest.approx(1e-3)
    cluster = cpu_cluster()
    timed = replace(cluster, intra_node_link=replace(cluster.intra_node_link, measured=all_reduces((2, 1.0, 1.0))))
    num_bytes, groups = np.array([1e6]), [group_of(np.array([2]), np.array([1]), one) for one in (cluster, timed)]
    assert all_gather_s(num_bytes, groups[1]) == all_gather_s(num_bytes, groups[0])
    cluster = cpu_cluster(2, num_nodes=2)
    link = replace(cluster.intra_node_link, measured=all_reduces((2, 1e-3, 1e-9)))
    group = group_of(np.array([2, 2]), np.array([1, 2]), replace(cluster, intra_node_link=link))
    assert all_reduce_s(np.zeros(2), group) == pytest.approx(1e-3)


def test_ranks_on_several_nodes_follow_the_lines_of_the_network() -> None:
    cluster = cpu_cluster(2, num_nodes=2)
    within, across = all_reduces((2, 1e-3, 1e-9)), all_reduces((2, 5e-3, 1e-9), (4, 7e-3, 1e-9))
    cluster = replace(
        cluster,
        intra_node_link=replace(cluster.intra_node_link, measured=within),
        inter_node_link=replace(cluster.inter_node_link, measured=across),
    )
    group = group_of(np.array([2, 2, 4]), np.array([1, 2, 1]), cluster)
    assert all_reduce_s(np.zeros(3), group) == pytest.approx([1e-3, 5e-3, 7e-3])
    assert all_reduce_s(np.full(3, 1e6), without_starts(group)) == pytest.approx(1e-3)


NVLINK = 400e9
PORT = 40e9


def link(bandwidth_bytes_per_s: float, **changes: Any) -> Link:
    """A link of which collectives get all, with no latency unless it is given."""
    return Link(
        name="ideal", bandwidth_bytes_per_s=bandwidth_bytes_per_s, **{"latency_s": 0, "efficiency": 1, **changes}
    )


def silent(num_nodes: int = 8, oversubscription: float = 1.0, **of_the_port: Any) -> Cluster:
    """A cluster whose links have no latency, so that bytes over bandwidth is all."""
    return h100_cluster(
        num_nodes,
        intra_node_link=link(NVLINK),
        inter_node_link=link(PORT, **of_the_port),
        oversubscription=oversubscription,
    )


def group(num_ranks: int, stride: int = 1, cluster: Cluster | None = None) -> Group:
    return group_of(np.array([num_ranks]), np.array([stride]), cluster or silent())


def seconds(values: Floats) -> float:
    return float(values[0])


def rounded(value: float) -> object:
    """Equal but for the order of products."""
    return pytest.approx(value, rel=1e-12)


ONE_GB = np.array([1e9])
NOTHING = np.array([0.0])


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_a_ring_passes_all_shares_but_one_and_copies_that(num_ranks: int) -> None:
    shares = num_ranks - 1 + OWN_SHARD_COST
    assert seconds(collectives.all_gather_s(ONE_GB, group(num_ranks))) == rounded(shares / num_ranks * 1e9 / NVLINK)


def test_rings_take_shares_of_the_slowest_links_and_an_all_to_all_its_own_port() -> None:
    eight = group(8)
    both = collectives.reduce_scatter_s(ONE_GB, eight) + collectives.all_gather_s(ONE_GB, eight)
    assert seconds(collectives.all_reduce_s(ONE_GB, eight)) == rounded(seconds(both))
    fat = h100_cluster(intra_node_link=link(NVLINK), inter_node_link=link(NVLINK))
    inside_s = (16 - 1 + OWN_SHARD_COST) / 16 * 1e9 / NVLINK
    assert seconds(collectives.all_gather_s(ONE_GB, group(16, cluster=fat))) == rounded(inside_s)
    # of 16 equal shares 8 go to the other node
    assert seconds(collectives.all_to_all_s(ONE_GB, group(16))) == rounded(0.5e9 / PORT)
    shares = 8 - 1 + OWN_SHARD_COST
    assert seconds(collectives.all_to_all_s(ONE_GB, group(8))) == rounded(shares / 8 * 1e9 / NVLINK)


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s", "send_s"])
def test_one_rank_alone_costs_nothing(collective: str) -> None:
    busy = link(NVLINK, latency_s=1e-6, start_s=1e-6, ramp_s=1e-6, multicast_efficiency=0.7)
    alone = group(1, cluster=h100_cluster(intra_node_link=busy, inter_node_link=busy))
    assert seconds(getattr(collectives, collective)(ONE_GB, alone)) == 0.0


@pytest.mark.parametrize("collective", ["all_reduce_s", "all_gather_s", "all_to_all_s", "send_s"])
def test_more_bytes_never_take_less_time(collective: str) -> None:
    across = group_of(np.full(3, 16), np.ones(3, dtype=np.int64), h100_cluster())
    times = getattr(collectives, collective)(np.array([1e3, 1e6, 1e9]), across)
    assert times[0] < times[1] < times[2]


def test_an_empty_message_costs_the_start_and_the_steps() -> None:
    slow = h100_cluster(
        intra_node_link=link(NVLINK, latency_s=1e-6, start_s=10e-6), inter_node_link=link(PORT, latency_s=5e-6)
    )
    four_nodes = group(32, cluster=slow)
    assert seconds(collectives.all_gather_s(NOTHING, four_nodes)) == rounded((10 + 3 * 5 + 28 * 1) * 1e-6)
    # up and down: 7 ranks of a node one after the other, then 4 nodes in a tree of height 2
    assert seconds(collectives.all_reduce_s(NOTHING, four_nodes)) == rounded((10 + 2 * 7 * 1 + 2 * 2 * 5) * 1e-6)
    assert seconds(collectives.send_s(NOTHING, four_nodes)) == rounded((10 + 5) * 1e-6)


def test_the_ramp_of_a_link_costs_most_where_a_transfer_is_about_as_long() -> None:
    filling = silent(ramp_s=1e-3)
    pair = group(2, stride=8, cluster=filling)
    # 4e7 bytes are one millisecond of the port: 1 + 2 sqrt(1 * 1); a hundred times as many: 100 + 2 sqrt(1 * 100)
    assert seconds(collectives.send_s(np.array([4e7]), pair)) == rounded(3e-3)
    assert seconds(collectives.send_s(np.array([4e9]), pair)) == rounded(120e-3)


def test_switches_that_add_win_for_large_messages_of_many_ranks_only() -> None:
    sharp = silent()
    sharp = h100_cluster(intra_node_link=link(NVLINK, multicast_efficiency=0.75), inter_node_link=sharp.inter_node_link)
    multicast_s = MULTICAST_S + (1 + 1 / 8) * 1e9 / (0.75 * NVLINK)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(8, cluster=sharp))) == rounded(multicast_s)
    # two ranks: 1.5 GB at 300 GB/s are more than 1.25 GB at 400; a small message does not pay for the start
    for num_ranks, sent in ((2, ONE_GB), (8, np.array([1e6]))):
        ring_s = collectives.all_reduce_s(sent, group(num_ranks))
        assert seconds(collectives.all_reduce_s(sent, group(num_ranks, cluster=sharp))) == seconds(ring_s)


@pytest.mark.parametrize(("num_ranks", "stride", "ports"), [(16, 1, 8), (8, 4, 2), (8, 8, 1)])
def test_all_ports_of_a_node_work_for_a_ring_that_leaves_it(num_ranks: int, stride: int, ports: int) -> None:
    sent = (num_ranks - 1) / num_ranks * 1e9  # the own share is copied meanwhile
    gathered_s = collectives.all_gather_s(ONE_GB, group(num_ranks, stride))
    assert seconds(gathered_s) == rounded(sent / (ports * PORT))


@pytest.mark.parametrize(("num_nodes", "times_sent"), [(2, 1), (4, 2), (64, 2)])
def test_between_nodes_whose_switches_add_the_sum_goes_up_and_down_two_trees(num_nodes: int, times_sent: int) -> None:
    sharp = h100_cluster(
        num_nodes,
        intra_node_link=link(NVLINK, multicast_efficiency=1.0, latency_s=1e-3),  # steps that keep from using a ring
        inter_node_link=link(PORT / 4),
    )
    # each of 8 ports carries its eighth of the node's sum; two nodes just swap theirs
    sent_s = times_sent * 1e9 / 8 / (PORT / 4)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(8 * num_nodes, cluster=sharp))) == rounded(
        MULTICAST_S + sent_s
    )


def test_in_a_mesh_without_a_switch_ranks_have_what_joins_them_of_the_bandwidth() -> None:
    mesh = h100_cluster(num_nodes=1, accelerators_per_node=4, intra_node_link=link(NVLINK, mesh_peers=3))
    switched = replace(mesh, intra_node_link=link(NVLINK))
    for num_ranks, parts in ((2, 3), (3, 1.5), (4, 1)):
        in_mesh_s, behind_switch_s = (
            seconds(collectives.all_gather_s(ONE_GB, group(num_ranks, cluster=c))) for c in (mesh, switched)
        )
        assert in_mesh_s == rounded(parts * behind_switch_s)
    assert seconds(collectives.send_s(ONE_GB, group(4, cluster=mesh))) == rounded(3 * 1e9 / NVLINK)


@pytest.mark.parametrize("num_nodes", [2, 64])
def test_long_messages_between_nodes_take_the_ring(num_nodes: int) -> None:
    num_ranks = 8 * num_nodes
    ring_s = 2 * (num_ranks - 1) / num_ranks * 1e9 / (8 * PORT)
    assert seconds(collectives.all_reduce_s(ONE_GB, group(num_ranks))) == rounded(ring_s)


def test_oversubscription_and_congestion_slow_down_what_leaves_a_node_only() -> None:
    for stride, factor in ((8, 4.0), (1, 1.0)):  # one rank on each node, all on one
        full_s = collectives.all_gather_s(ONE_GB, group(8, stride))
        thin_s = collectives.all_gather_s(ONE_GB, group(8, stride, silent(oversubscription=4.0)))
        assert seconds(thin_s) == rounded(factor * seconds(full_s))
    for num_nodes in (2, 8):
        free_s = collectives.send_s(ONE_GB, group(num_nodes, stride=8))
        congested_s = collectives.send_s(ONE_GB, group(num_nodes, stride=8, cluster=silent(congestion=0.5)))
        assert seconds(congested_s) == rounded(num_nodes**0.5 * seconds(free_s))


# ---------------------------------------------------------------- what a layout asks of NCCL
def all_reduce_with(full_bytes: float, gpus: str, num_ranks: int, **asked: Any) -> float:
    """Seconds on a catalog cluster, whose ranks all reduce, for what the layout names."""
    x = LayoutColumns.from_layouts([Layout(data_parallel_replicate_degree=num_ranks, **asked)])
    return seconds(collectives.all_reduce_s(np.array([full_bytes]), replicate_group(x, load_cluster(gpus))))


BY_SWITCHES = (CollectiveAlgorithm.NVLS, CollectiveAlgorithm.COLLNET)
ASKED: list[dict[str, Any]] = [
    *({"collective_algorithm": way} for way in CollectiveAlgorithm if way not in BY_SWITCHES),
    *({"collective_protocol": protocol} for protocol in CollectiveProtocol),
    {"collective_channels": 4},
    {"collective_algorithm": CollectiveAlgorithm.TREE, "collective_protocol": CollectiveProtocol.LL},
]
SIZES = [1e3, 1e5, 1e7, 1e9]


@pytest.mark.parametrize("gpus", ["a100:8", "a100:64", "h100:8", "h100:64"])
@pytest.mark.parametrize("full_bytes", SIZES)
def test_nothing_that_is_named_is_predicted_faster_than_what_nccl_chooses(gpus: str, full_bytes: float) -> None:
    num_ranks = int(gpus.partition(":")[2])
    free = all_reduce_with(full_bytes, gpus, num_ranks)
    assert all(all_reduce_with(full_bytes, gpus, num_ranks, **asked) >= free * (1 - 1e-12) for asked in ASKED)


def test_a_tree_beats_a_ring_in_short_messages_over_many_nodes_and_loses_in_long_ones_over_two() -> None:
    def gain(full_bytes: float, num_ranks: int) -> float:
        ways = (CollectiveAlgorithm.RING, CollectiveAlgorithm.TREE)
        ring, tree = (
            all_reduce_with(full_bytes, f"a100:{num_ranks}", num_ranks, collective_algorithm=way) for way in ways
        )
        return ring / tree

    assert gain(1e5, 256) > 2
    assert gain(1e5, 256) > gain(1e5, 64) > gain(1e5, 16)
    assert gain(1e9, 16) < 1


def test_ll_is_the_protocol_of_short_messages_ll128_of_middling_and_simple_of_long_ones() -> None:
    def best(full_bytes: float) -> CollectiveProtocol:
        ring = {"collective_algorithm": CollectiveAlgorithm.RING}
        named = [protocol for protocol in CollectiveProtocol if protocol != CollectiveProtocol.AUTO]
        return min(named, key=lambda p: all_reduce_with(full_bytes, "a100:8", 8, collective_protocol=p, **ring))

    assert [best(size) for size in (1e4, 1e7, 1e9)] == [
        CollectiveProtocol.LL,
        CollectiveProtocol.LL128,
        CollectiveProtocol.SIMPLE,
    ]


def test_few_channels_bound_the_bandwidth_of_the_layout_that_names_them_alone() -> None:
    few, enough = (all_reduce_with(1e9, "a100:8", 8, collective_channels=number) for number in (2, 24))
    assert few == pytest.approx(2 * 1e9 * 7 / 8 / (2 * collectives.CHANNEL_BYTES_PER_S))
    assert enough == all_reduce_with(1e9, "a100:8", 8)
    layouts = [
        Layout(data_parallel_replicate_degree=8),
        Layout(data_parallel_replicate_degree=8, collective_channels=1),
    ]
    both = replicate_group(LayoutColumns.from_layouts(layouts), load_cluster("h100:8"))
    assert seconds(collectives.all_reduce_s(np.full(2, 1e7), both)) == all_reduce_with(1e7, "h100:8", 8)


PORT_BYTES_PER_S = 25e6
TWO_LEVEL = CollectiveHierarchy.TWO_LEVEL
MIB_8 = np.array([8.0 * 2**20])


def named_link(name: str, bandwidth_bytes_per_s: float, **changes: Any) -> Link:
    return Link(name=name, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=0.0, efficiency=1.0, **changes)


def two_slow_nodes() -> Cluster:
    """Two nodes of two cores, which share a port of 200 Mbit/s; inside a node bytes take no time to speak of."""
    inside, port = named_link("memory", 1e15), named_link("port", PORT_BYTES_PER_S / 2)
    return cpu_cluster(2, num_nodes=2, intra_node_link=inside, inter_node_link=port)


def two_gpu_nodes(**network: Any) -> Cluster:
    inside, port = named_link("nvlink", 4e12), named_link("port", 40e9)  # ten times as fast inside: ports decide
    described = Network(name="drawn", **network) if network else None
    return h100_cluster(2, intra_node_link=inside, inter_node_link=port, network=described)


def group_and_columns(layout: Layout, cluster: Cluster) -> tuple[Group, LayoutColumns]:
    x = LayoutColumns.from_layouts([layout])
    group = shard_group if layout.shard_level != ShardLevel.NONE else replicate_group
    return group(x, cluster), x


@pytest.mark.parametrize(
    ("changes", "times_sent"),
    [
        ({}, 1.5),  # a ring leaves each node once: 2 (n - 1) / n of the bytes
        ({"rank_placement": RankPlacement.CYCLIC}, 3.0),  # both ranks of a node send to the other one
        ({"collective_algorithm": CollectiveAlgorithm.RING}, 1.5),
        ({"collective_algorithm": CollectiveAlgorithm.TREE}, 2.0 * TREE_WAIT),  # two edges of each lie between
        ({"collective_hierarchy": TWO_LEVEL}, 1.0),
        ({"collective_hierarchy": TWO_LEVEL, "rank_placement": RankPlacement.CYCLIC}, 1.0),
    ],
    ids=str,
)
def test_between_two_slow_nodes_an_all_reduce_takes_what_leaves_one(changes: dict[str, Any], times_sent: float) -> None:
    group, x = group_and_columns(Layout(data_parallel_replicate_degree=4, **changes), two_slow_nodes())
    (seconds,) = data_all_reduce_s(MIB_8, group, x)
    # the inside of a node is 10^8 times as fast, and not quite free
    assert seconds * PORT_BYTES_PER_S / MIB_8[0] == pytest.approx(times_sent, rel=1e-6)


def test_on_two_levels_a_gather_is_one_between_nodes_and_one_inside_them() -> None:
    layout = Layout(data_parallel_shard_degree=16, shard_level=ShardLevel.PARAMETERS, collective_hierarchy=TWO_LEVEL)
    group, x = group_and_columns(layout, two_gpu_nodes())
    parts = all_gather_s(MIB_8 / 8, group.between_nodes) + all_gather_s(MIB_8, group.inside_nodes)
    assert data_all_gather_s(MIB_8, group, x) == parts
    assert data_reduce_scatter_s(MIB_8, group, x) == parts  # the same backwards


@pytest.mark.parametrize("timed", [data_all_reduce_s, data_all_gather_s, data_reduce_scatter_s])
def test_flat_collectives_are_those_of_any_group(timed: Any) -> None:
    layout = Layout(data_parallel_replicate_degree=16)
    group, x = group_and_columns(layout, two_gpu_nodes())
    flat = {data_all_reduce_s: all_reduce_s, data_all_gather_s: all_gather_s, data_reduce_scatter_s: reduce_scatter_s}
    assert timed(MIB_8, group, x) == flat[timed](MIB_8, group)


@pytest.mark.parametrize("inside_bytes_per_s", [1e6, 1e9])
@pytest.mark.parametrize("mib", [0.5, 1.5, 8.0, 100.0])
def test_on_cores_the_longer_level_is_always_at_work_and_a_piece_shows(inside_bytes_per_s: float, mib: float) -> None:
    layout = Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS, collective_hierarchy=TWO_LEVEL)
    full_bytes = np.array([mib * MIB])
    cluster = replace(two_slow_nodes(), intra_node_link=named_link("memory", inside_bytes_per_s))
    group, x = group_and_columns(layout, cluster)
    shorter_s, longer_s = sorted(
        (all_gather_s(full_bytes, group.inside_nodes)[0], all_gather_s(full_bytes / 2, group.between_nodes)[0])
    )
    # neither link has a latency, by which pieces would cost more than the whole
    expected = pytest.approx(longer_s + shorter_s / num_pieces(int(full_bytes[0])))
    assert data_all_gather_s(full_bytes, group, x)[0] == expected
    assert data_reduce_scatter_s(full_bytes, group, x)[0] == expected


def test_a_table_that_holds_one_two_level_row_keeps_the_others_as_they_are() -> None:
    flat = Layout(data_parallel_replicate_degree=16)
    x = LayoutColumns.from_layouts([flat, replace(flat, collective_hierarchy=TWO_LEVEL)])
    both = data_all_reduce_s(np.repeat(MIB_8, 2), replicate_group(x, two_gpu_nodes()), x)
    group, alone = group_and_columns(flat, two_gpu_nodes())
    assert both[0] == data_all_reduce_s(MIB_8, group, alone)[0]
    assert both[1] != both[0]


def test_switches_of_the_network_add_with_half_the_bytes_of_a_ring_that_leaves_its_node() -> None:
    ring = Layout(data_parallel_replicate_degree=16, collective_algorithm=CollectiveAlgorithm.RING)
    (ring_s,) = data_all_reduce_s(np.array([1e9]), *group_and_columns(ring, two_gpu_nodes(adds=True)))
    added = replace(ring, collective_algorithm=CollectiveAlgorithm.COLLNET)
    (added_s,) = data_all_reduce_s(np.array([1e9]), *group_and_columns(added, two_gpu_nodes(adds=True)))
    # each of 8 ports: its eighth of the bytes once, at 0.9 of its rate; the ring, 2 (n - 1) / n of them
    assert added_s == pytest.approx(1e9 / 8 / 40e9 / 0.9)
    assert ring_s == pytest.approx(2 * 15 / 16 * 1e9 / 8 / 40e9)
    asked = Layout(data_parallel_replicate_degree=8, collective_algorithm=CollectiveAlgorithm.COLLNET)
    ring = replace(asked, collective_algorithm=CollectiveAlgorithm.RING)
    cluster = replace(two_gpu_nodes(adds=True))
    assert data_all_reduce_s(MIB_8, *group_and_columns(asked, cluster)) == data_all_reduce_s(
        MIB_8, *group_and_columns(ring, cluster)
    )
