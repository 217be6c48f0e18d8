from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.choices import RankOrder, RankPlacement, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.link import Link
from autotuner.core.network import Network, Tier
from autotuner.costmodel.communication.collectives import all_reduce_s
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layout_groups import (
    expert_group,
    group_of,
    pipeline_group,
    replicate_group,
    shard_group,
)
from autotuner.costmodel.communication.link_load import unevenness
from tests.builders import big_job, cpu_cluster, h100_cluster


@pytest.mark.parametrize(("num_balls", "num_bins"), [(8, 16), (32, 32), (64, 16), (512, 32), (4096, 64)])
def test_the_fullest_bin_holds_as_many_balls_as_when_they_are_thrown(num_balls: int, num_bins: int) -> None:
    thrown = np.random.default_rng(0).integers(num_bins, size=(4000, num_balls))
    offsets = thrown + num_bins * np.arange(4000)[:, None]
    fullest = np.bincount(offsets.ravel(), minlength=4000 * num_bins).reshape(4000, num_bins).max(axis=1).mean()
    found = float(unevenness(np.array([float(num_balls)]), num_bins)[0]) * num_balls / num_bins
    # independent bins hold now more, now fewer balls in all, which matters where there are few: 6 % of 8 balls
    assert found == pytest.approx(fullest, rel=0.08)


def test_balls_and_tori_are_as_formulas_say() -> None:
    around = unevenness(np.array([16 * 0.99e4, 16 * 1.01e4]), 16)
    assert around[0] - 1 == pytest.approx(around[1] - 1, rel=0.5)  # a bound for many bins beside the tail for 16
    assert around[1] < 1.03
    assert unevenness(np.array([0.0, 5.0]), 1).tolist() == [1, 1]
    assert unevenness(np.array([0.0]), 8).tolist() == [1]
    torus, flat = group(512, 1, TORUS), group(512, 1, None)
    # bytes go one link far along each dimension on average, over a third of a node's links
    assert float(torus.all_to_all_s_per_byte()[0] / flat.all_to_all_s_per_byte()[0]) == pytest.approx(3 * 512 / 504)


THIN = Network(
    name="thin",
    tiers=(
        Tier(name="leaf", nodes_per_switch=4, oversubscription=2.0),
        Tier(name="spine", nodes_per_switch=16, oversubscription=4.0, latency_s=5e-6),
    ),
)


def group(num_ranks: int, stride: int, network: Network | None, num_nodes: int = 64) -> Group:
    cluster = h100_cluster(num_nodes=num_nodes, network=network)
    return group_of(np.array([num_ranks]), np.array([stride]), cluster)


def times_longer(num_ranks: int, stride: int, network: Network) -> float:
    """Of a byte around the ring, beside one switch that joins all."""
    thin, flat = (group(num_ranks, stride, one).ring_s_per_byte[0] for one in (network, None))
    return float(thin / flat)


def test_thin_uplinks_are_made_up_for_below_one_leaf_and_an_all_to_all_fills_them() -> None:
    clos = Network(name="clos", tiers=tuple(Tier(name=f"{n}", nodes_per_switch=n) for n in (4, 16)))
    sizes, strides = np.array([8, 16, 64, 512, 64]), np.array([1, 1, 8, 1, 1])
    plain, tiered = (group_of(sizes, strides, h100_cluster(num_nodes=64, network=n)) for n in (None, clos))
    for name in ("ring_s_per_byte", "tree_s_per_byte", "send_s_per_byte", "ring_latency_s", "tree_latency_s"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(tiered, name))
    np.testing.assert_array_equal(plain.all_to_all_s_per_byte(), tiered.all_to_all_s_per_byte())
    assert times_longer(4, 8, THIN) == times_longer(32, 1, THIN) == 1
    # 16 replicas 8 apart: 4 below each leaf, whose uplinks are half as thick; one of 4 goes up at a time
    assert times_longer(16, 8, THIN) == 1
    # 16 replicas 32 apart: one below each leaf, 4 below each spine, which passes an eighth
    assert times_longer(16, 32, THIN) == pytest.approx(2)  # leaf 2 / 1, spine 8 / 4
    # 4 replicas 128 apart: one below each spine
    assert times_longer(4, 128, THIN) == pytest.approx(8)
    thin, flat = group(64, 8, THIN), group(64, 8, None)
    # 48 of 64 ranks lie below another spine, whose uplinks are an eighth as thick as ports
    expected = 8 * 48 / 63
    assert float(thin.all_to_all_s_per_byte()[0] / flat.all_to_all_s_per_byte()[0]) == pytest.approx(expected)
    thin, flat = group(16, 32, THIN), group(16, 32, None)
    # 16 leaves, and so 15 steps that turn around at the spine or above it
    assert float(thin.ring_latency_s[0] - flat.ring_latency_s[0]) == pytest.approx(15 * 5e-6)


RAILS = Network(name="rails", tiers=(Tier(name="leaf", nodes_per_switch=8, oversubscription=2.0),), num_rails=8)


def experts(*, pxn: bool) -> Floats:
    x = LayoutColumns.from_layouts([Layout(data_parallel_shard_degree=64, expert_parallel_degree=64, pxn=pxn)])
    job = replace(big_job(), cluster=h100_cluster(num_nodes=16, network=RAILS))
    return expert_group(x, job).all_to_all_s_per_byte()


def test_without_pxn_what_is_for_another_rail_goes_over_the_thin_spine_and_rings_stay_on_theirs() -> None:
    # 64 ranks on the 8 nodes below the leaves: 56 go out by a port, 49 of them to another rail, up at half the rate
    assert float(experts(pxn=False)[0] / experts(pxn=True)[0]) == pytest.approx(2 * 49 / 56)
    rings = [
        shard_group(
            LayoutColumns.from_layouts([Layout(data_parallel_shard_degree=128, pxn=pxn)]),
            h100_cluster(num_nodes=16, network=RAILS),
        ).ring_s_per_byte[0]
        for pxn in (False, True)
    ]
    assert rings[0] == rings[1]


def hashed(queue_pairs: int, *, adapts: bool) -> float:
    network = replace(THIN, adapts_routes=adapts)
    layout = Layout(data_parallel_replicate_degree=16, data_parallel_shard_degree=32, queue_pairs=queue_pairs)
    x = LayoutColumns.from_layouts([layout])
    return float(replicate_group(x, h100_cluster(num_nodes=64, network=network)).ring_s_per_byte[0])


def test_hashing_is_evened_out_by_queue_pairs_and_routing_and_gloo_crosses_nodes_twice() -> None:
    even = hashed(1, adapts=True)
    assert hashed(4, adapts=True) == even
    assert even <= hashed(64, adapts=False) < hashed(8, adapts=False) < hashed(1, adapts=False)
    # 6 / 4 of 8 MiB leave a node in blocks, twice that where ranks alternate, at 25 MB/s
    assert twice_round_s(RankPlacement.BLOCK) == pytest.approx(0.503, abs=1e-3)
    assert twice_round_s(RankPlacement.CYCLIC) == pytest.approx(1.007, abs=1e-3)


# ---------------------------------------------------------------- two nodes of two ranks, one port each
def two_nodes(*, ports: int | None = 1) -> Cluster:
    """Ports of 200 Mbit/s, of which each of two ranks has half."""
    link = Link(name="veth", bandwidth_bytes_per_s=12.5e6, latency_s=0.0, efficiency=1.0)
    memory = Link(name="memory", bandwidth_bytes_per_s=1e10, latency_s=0.0, efficiency=1.0)
    cluster = replace(cpu_cluster(num_cores=2), num_nodes=2, intra_node_link=memory, inter_node_link=link)
    return replace(cluster, network=Network(name="two nodes", ports_per_node=ports))


def twice_round_s(placement: RankPlacement) -> float:
    """An all-reduce of 8 MiB around a ring."""
    x = LayoutColumns.from_layouts([Layout(data_parallel_replicate_degree=4, rank_placement=placement)])
    return 2 * (8 << 20) * float(replicate_group(x, two_nodes()).ring_s_per_byte[0])


@pytest.mark.parametrize("placement", list(RankPlacement))
def test_in_two_levels_each_rank_sends_half_of_its_part_wherever_ranks_lie(placement: RankPlacement) -> None:
    x = LayoutColumns.from_layouts([Layout(data_parallel_replicate_degree=4, rank_placement=placement)])
    levels = replicate_group(x, two_nodes())
    inside, between = levels.inside_nodes, levels.between_nodes
    assert (int(inside.num_ranks[0]), int(between.num_ranks[0])) == (2, 2)
    # 4 MiB of each of two ranks, half of which goes each way twice, at half of 25 MB/s
    part_bytes = np.array([float(4 << 20)])
    assert float(all_reduce_s(part_bytes, between)[0]) == pytest.approx(0.336, abs=1e-3)


def test_ranks_of_a_node_share_thin_uplinks_and_dealing_in_turn_keeps_groups_inside() -> None:
    flat, between = group(512, 1, THIN), group(512, 1, THIN).between_nodes
    # an eighth of the bytes, 8 rings at once: as long as one ring with all ports, but for the shares that stay inside
    over_uplinks = 64 / 63 * (511 / 512) * between.ring_s_per_byte[0] / 8
    assert float(flat.ring_s_per_byte[0]) == pytest.approx(float(over_uplinks), rel=0.01)  # inside nodes is faster
    cluster = h100_cluster(num_nodes=8)
    layouts = [
        Layout(pipeline_parallel_degree=8, data_parallel_shard_degree=8, rank_placement=p) for p in RankPlacement
    ]
    x = LayoutColumns.from_layouts(layouts)
    assert pipeline_group(x, cluster).crosses_nodes.tolist() == [True, False]
    assert shard_group(x, cluster).crosses_nodes.tolist() == [False, True]


def test_replicas_outermost_have_the_uplinks_of_the_context_ranks_beside_them() -> None:
    x = LayoutColumns.from_layouts(
        [
            Layout(
                data_parallel_replicate_degree=16,
                context_parallel_degree=2,
                pipeline_parallel_degree=16,
                shard_level=ShardLevel.NONE,
                rank_order=order,
            )
            for order in RankOrder
        ]
    )
    thin, flat = (replicate_group(x, h100_cluster(num_nodes=64, network=n)) for n in (THIN, None))
    # stages outermost: 32 ranks below one leaf; replicas 32 apart: 2 side by side below each leaf, 8 below each spine
    assert (thin.ring_s_per_byte / flat.ring_s_per_byte).tolist() == pytest.approx([1, 2])


# ---------------------------------------------------------------- a torus
TORUS = Network(name="torus", torus=(4, 4, 4))


@pytest.mark.parametrize(
    ("num_ranks", "stride", "longer"),
    [
        (512, 1, 3),  # around the first dimension: a third of a node's links
        (4, 8, 3),  # four nodes in a row, around
        (4, 32, 3),  # along the second dimension, around
        (2, 8, 6),  # there and back over the same link
        (2, 16, 6),  # two links on, half of the bytes either way around
    ],
)
def test_rings_on_a_torus_have_the_links_of_one_dimension(num_ranks: int, stride: int, longer: float) -> None:
    assert times_longer(num_ranks, stride, TORUS) == pytest.approx(longer)
