"""Groups of ranks: which links they have, and what the parts of a layer exchange in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from autotuner.core.blocks import MixtureOfExperts
from autotuner.core.choices import ContextExchange, RankOrder, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import Integers, LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth, MeasuredCollective
from autotuner.core.network import Wiring
from autotuner.costmodel.communication.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
    send_s,
)
from autotuner.costmodel.communication.group import Group
from autotuner.costmodel.communication.layer_collectives import (
    ExchangeTimes,
    dispatch_s,
    exchange_times,
    exposed_dispatch_s,
    exposed_s,
    layer_tensor_s,
    overlap_share,
)
from autotuner.costmodel.communication.layout_groups import (
    context_group,
    expert_group,
    group_of,
    pipeline_group,
    replicate_group,
    shard_group,
    tensor_group,
)
from autotuner.costmodel.communication.node_topology import PCIE_EFFICIENCY, WiredNode, wired_node
from autotuner.costmodel.communication.rank_placement import Places, Windows
from autotuner.search.explain.communication import routes
from tests.builders import big_job, cpu_cluster, h100, h100_cluster, llama_70b, present, tiny_job
from tests.cases import each
from tests.unit.costmodel.test_stage_load import apart
from tests.unit.costmodel.works import columns, first, on_stack, with_stack

# ---------------------------------------------------------------- What a late or narrow link does to collectives
FOUR = h100_cluster(num_nodes=4, accelerators_per_node=1)
SHARDED = LayoutColumns.from_layouts([Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS)])
BYTES = np.array([1e6])


def with_link(cluster: Cluster, **changes: object) -> Cluster:
    return replace(cluster, link_health=(LinkHealth(**{"ends": (1, 2), **changes}),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("collective", "num_steps"),
    [(all_gather_s, 3), (all_to_all_s, 3), (all_reduce_s, 4)],  # a tree of four: two steps up, two down
    ids=["all_gather", "all_to_all", "all_reduce"],
)
def test_a_late_link_is_late_in_every_step_of_a_collective(collective: object, num_steps: int) -> None:
    assert callable(collective)
    healthy, late = (shard_group(SHARDED, cluster) for cluster in (FOUR, with_link(FOUR, delay_s=0.01)))
    added_s = collective(BYTES, late) - collective(BYTES, healthy)
    assert float(added_s[0]) == pytest.approx(num_steps * 0.01, rel=0.02)  # the faster algorithm may be another


def test_a_narrow_link_slows_the_rings_that_reach_over_it_alone() -> None:
    two_nodes = h100_cluster(num_nodes=2)
    late = replace(two_nodes, link_health=(LinkHealth(ends=(0, 1), delay_s=1.0),))
    x = LayoutColumns.from_layouts([Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=2)])
    assert all_reduce_s(BYTES, tensor_group(x, late)) == all_reduce_s(BYTES, tensor_group(x, two_nodes))
    assert all_reduce_s(BYTES, replicate_group(x, late)) > 1.0
    narrow = with_link(FOUR, bandwidth_bytes_per_s=FOUR.inter_node_link.bandwidth_bytes_per_s / 10)
    large = np.array([1e12])
    ratio = all_gather_s(large, shard_group(SHARDED, narrow)) / all_gather_s(large, shard_group(SHARDED, FOUR))
    assert float(ratio[0]) == pytest.approx(10, rel=0.01)  # latencies are nothing beside so many bytes


def test_groups_have_the_ports_of_their_domain_and_are_late_as_their_timed_links() -> None:
    timed = MeasuredCollective(kind="all_gather", num_ranks=4, start_s=1e-3, s_per_byte=1e-9)
    link = replace(FOUR.intra_node_link, measured=(timed,))
    node = h100_cluster(num_nodes=1, accelerators_per_node=4, intra_node_link=link, inter_node_link=link)
    slow = with_link(node, delay_s=0.01, bandwidth_bytes_per_s=1e6)
    seconds = [float(all_gather_s(BYTES, shard_group(SHARDED, cluster))[0]) for cluster in (node, slow)]
    assert seconds == pytest.approx([2e-3, 0.75 + 0.03])
    racks = h100_cluster(num_nodes=32, accelerators_per_node=4, nvlink_domain=72)
    assert [ranks_per_node(*group, racks) for group in ((8, 1), (64, 1), (128, 1), (16, 8))] == [8, 64, 64, 8]
    assert [ranks_per_node(n, 1, h100_cluster(num_nodes=3)) for n in (3, 4, 6)] == [1, 4, 2]


def test_replicas_outermost_lie_far_apart_and_context_ranks_are_replicas_without_shards() -> None:
    layout = Layout(data_parallel_replicate_degree=2, pipeline_parallel_degree=8, context_parallel_degree=2)
    x = LayoutColumns.from_layouts([layout, replace(layout, rank_order=RankOrder.REPLICAS_OUTERMOST)])
    group = replicate_group(x, h100_cluster(num_nodes=4))
    assert group.num_ranks.tolist() == [4, 4]
    assert group.crosses_nodes.tolist() == [False, True]
    assert group.ranks_per_node.tolist() == [4, 2]
    x = LayoutColumns.from_layouts([Layout(context_parallel_degree=4, data_parallel_replicate_degree=2)])
    assert replicate_group(x, h100_cluster()).num_ranks.tolist() == [8]


# ---------------------------------------------------------------- Where the groups of a layout lie
def ranks_per_node(num_ranks: int, stride: int, cluster: Cluster) -> int:
    return int(group_of(np.array([num_ranks]), np.array([stride]), cluster).ranks_per_node[0])


@each(("group_size", "stride"), list(product([1, 2, 3, 4, 8, 16], [1, 2, 3, 4, 8, 16])))
def test_a_group_crosses_nodes_exactly_where_the_cluster_says_so(group_size: int, stride: int) -> None:
    cluster = h100_cluster()
    crosses = cluster.link_for(group_size, stride) == cluster.inter_node_link
    assert bool(group_of(np.array([group_size]), np.array([stride]), cluster).crosses_nodes[0]) == crosses


def test_groups_follow_the_rank_order_of_a_layout() -> None:
    x = LayoutColumns.from_layouts([Layout.parse("dp2 fsdp2 tp4 cp2 ep8 pp2")])
    cluster = h100_cluster()
    sizes_and_ports = {
        name: (int(g.num_ranks[0]), int(g.ranks_per_node[0]), bool(g.crosses_nodes[0]))
        for name, g in {
            "tensor": tensor_group(x, cluster),
            "context": context_group(x, cluster),
            "shard": shard_group(x, cluster),
            "replicate": replicate_group(x, cluster),
            "expert": expert_group(x, replace(big_job(), cluster=cluster)),
            "pipeline": pipeline_group(x, cluster),
        }.items()
    }
    assert sizes_and_ports == {
        "tensor": (4, 4, False),
        "context": (2, 2, False),
        "shard": (4, 2, True),  # shard and context ranks, 4 apart
        "replicate": (2, 1, True),
        "expert": (8, 8, False),
        "pipeline": (2, 1, True),
    }


# ---------------------------------------------------------------- node topology
PAIRS = Wiring(
    name="pairs",
    nvlink_groups=((0, 1), (2, 3), (4, 5), (6, 7)),
    sockets=((0, 1, 2, 3), (4, 5, 6, 7)),
    pcie_bandwidth_bytes_per_s=50e9,
    socket_bandwidth_bytes_per_s=20e9,
)


def _column(*numbers: int) -> Integers:
    return np.array(numbers, dtype=np.int64)


def _found(cluster: Cluster, ranks: tuple[int, ...], strides: tuple[int, ...]) -> WiredNode:
    return present(wired_node(_column(*ranks), _column(*strides), cluster))


def _nvlink_rate(cluster: Cluster) -> float:
    return cluster.intra_node_link.efficiency * cluster.intra_node_link.bandwidth_bytes_per_s


def test_nodes_whose_cards_are_wired_in_pairs_are_slowed_where_groups_cross_between_them() -> None:
    cluster = replace(h100_cluster(), wiring=PAIRS)
    found = _found(cluster, (1, 2, 4, 8), (1, 1, 1, 1))
    rate = _nvlink_rate(cluster)
    assert found.ring_slowdown == pytest.approx([1, 1, rate / (PCIE_EFFICIENCY * 50e9), rate / 20e9])
    assert found.delay_s.astype(bool).tolist() == [False, False, True, True]
    found = _found(cluster, (2, 2, 4, 8), (4, 1, 2, 1))
    assert found.ring_slowdown == pytest.approx([4 * rate / 20e9, 1, 2 * rate / 20e9, rate / 20e9])
    wiring = Wiring(name="switches", nvlink_groups=(), switches=((0, 1), (2, 3)), pcie_bandwidth_bytes_per_s=50e9)
    cluster = replace(h100_cluster(), wiring=wiring, accelerators_per_node=4)
    beside, across = _found(cluster, (2, 2), (1, 2)).ring_slowdown
    assert across == pytest.approx(2 * beside)
    cluster = replace(h100_cluster(), wiring=PAIRS)
    found = _found(cluster, (8,), (1,))
    sent = 4 * 4 / 7  # each of four ranks of a socket sends a seventh to each of the other four
    assert found.pair_slowdown == pytest.approx(sent * found.ring_slowdown)
    whole = Wiring(name="whole", nvlink_groups=(tuple(range(8)),), sockets=((0, 1, 2, 3), (4, 5, 6, 7)))
    assert wired_node(_column(8), _column(1), replace(h100_cluster(), wiring=whole)) is None


def test_wires_of_a_node_may_be_asked_for_no_group_at_all() -> None:
    none = np.empty(0, dtype=np.int64)
    assert present(wired_node(none, none, replace(h100_cluster(), wiring=PAIRS))).ring_slowdown.size == 0


def test_collectives_inside_such_a_node_take_longer_and_those_of_a_pair_do_not() -> None:
    plain = h100_cluster(num_nodes=2)
    ranks, strides = _column(2, 8, 16), _column(1, 1, 1)
    before, after = (group_of(ranks, strides, each) for each in (plain, replace(plain, wiring=PAIRS)))
    slower = after.ring_s_per_byte / before.ring_s_per_byte
    assert slower[0] == 1.0
    assert slower[1] == pytest.approx(_nvlink_rate(plain) / 20e9)
    assert slower[2] > 1.0
    assert (after.ring_latency_s >= before.ring_latency_s).all()
    assert (after.all_to_all_s_per_byte() >= before.all_to_all_s_per_byte()).all()


def test_the_limiting_link_of_a_group_and_of_its_route_is_the_one_that_its_node_has() -> None:
    cluster = replace(h100_cluster(num_nodes=2), wiring=PAIRS)
    names = [cluster.link_for(size, 1).name for size in (2, 4, 8, 16)]
    assert names == ["nvlink4", "the root of one socket's PCIe", "the link between sockets", "ndr400"]
    wired = replace(h100_cluster(num_nodes=2), wiring=PAIRS)
    layout = Layout(tensor_parallel_degree=8, data_parallel_replicate_degree=2)
    tensor, _ = routes(layout, replace(big_job(2), cluster=wired))
    assert tensor.limiting_link == "the link between sockets"


# ---------------------------------------------------------------- rank placement
WORLD = 240
UNEVEN = [(3, 1), (12, 1), (5, 2), (6, 5), (10, 3), (20, 4), (2, 24), (40, 2), (3, 40), (60, 4), (15, 16)]
SIZES = [8, 16, 32, 64]


def windows(size: int) -> Windows:
    num_ranks, stride = (np.array(column) for column in zip(*UNEVEN, strict=True))
    return Windows(num_ranks=num_ranks, stride=stride, size=size, world_size=WORLD)


def groups(num_ranks: int, stride: int) -> list[list[int]]:
    starts = (first for first in range(WORLD) if first // stride % num_ranks == 0)
    return [[first + stride * i for i in range(num_ranks)] for first in starts]


@pytest.mark.parametrize("size", SIZES)
def test_traffic_that_leaves_the_busiest_part_equals_a_direct_count(size: int) -> None:
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).rings_out(), strict=True):
        left: Counter[int] = Counter()
        for group in groups(num_ranks, stride):
            met = {rank // size for rank in group}
            left.update(met if len(met) > 1 else ())
        assert found == max(left.values(), default=0), (num_ranks, stride)
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).sends_out(), strict=True):
        pairs = (pair for group in groups(num_ranks, stride) for pair in pairwise(group))
        sent = Counter(one // size for one, other in pairs if one // size != other // size)
        assert found == max(sent.values(), default=0), (num_ranks, stride)
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).shares_out(), strict=True):
        shared: Counter[int] = Counter()
        for group in groups(num_ranks, stride):
            inside = Counter(rank // size for rank in group)
            shared.update({part: count * (num_ranks - count) for part, count in inside.items()})
        assert found * num_ranks == pytest.approx(max(shared.values(), default=0)), (num_ranks, stride)


NODES, PER_NODE = 8, 4
NUM_RANKS = NODES * PER_NODE
EVEN = [(n, stride) for n, stride in product((2, 4, 8, 16, 32), (1, 2, 4, 8, 16)) if n * stride <= NUM_RANKS]


def places(num_ranks: int, stride: int, *, cyclic: bool, sorts: bool = False) -> Places:
    return Places(
        num_ranks=np.array([num_ranks]),
        stride=np.array([stride]),
        is_cyclic=np.array([cyclic]),
        num_nodes=NODES,
        ranks_per_node=PER_NODE,
        sorts_ring=sorts,
    )


def groups_of(num_ranks: int, stride: int) -> list[list[int]]:
    starts = (first for first in range(NUM_RANKS) if first // stride % num_ranks == 0)
    return [[first + stride * i for i in range(num_ranks)] for first in starts]


def part_of(rank: int, nodes: int, *, cyclic: bool) -> int:
    return (rank % NODES if cyclic else rank // PER_NODE) // nodes


@pytest.mark.parametrize(("cyclic", "nodes"), list(product((False, True), (1, 2, 4, 8))))
def test_ranks_of_a_group_below_a_switch_are_those_that_counting_finds(cyclic: bool, nodes: int) -> None:
    for num_ranks, stride in EVEN:
        below = {
            count
            for group in groups_of(num_ranks, stride)
            for count in Counter(part_of(rank, nodes, cyclic=cyclic) for rank in group).values()
        }
        assert {int(places(num_ranks, stride, cyclic=cyclic).ranks_below(nodes)[0])} == below, (num_ranks, stride)


def leaving(num_ranks: int, stride: int, nodes: int, *, cyclic: bool, sorts: bool) -> int:
    """Times that rings leave the part which they leave most often."""
    left: Counter[int] = Counter()
    for group in groups_of(num_ranks, stride):
        parts = [part_of(rank, nodes, cyclic=cyclic) for rank in group]
        ring = sorted(parts) if sorts else parts
        left.update(one for one, other in zip(ring, [*ring[1:], ring[0]], strict=True) if one != other)
    return max(left.values(), default=0)


@pytest.mark.parametrize(("cyclic", "sorts", "nodes"), list(product((False, True), (False, True), (1, 2, 4))))
def test_rings_leave_a_switch_as_often_as_counting_finds(cyclic: bool, sorts: bool, nodes: int) -> None:
    for num_ranks, stride in EVEN:
        where = places(num_ranks, stride, cyclic=cyclic, sorts=sorts)
        found = nodes * PER_NODE / float(where.ring_ranks(nodes)[0]) if where.leave(nodes)[0] else 0.0
        assert found == pytest.approx(leaving(num_ranks, stride, nodes, cyclic=cyclic, sorts=sorts)), (
            num_ranks,
            stride,
        )


@pytest.mark.parametrize(("cyclic", "nodes"), list(product((False, True), (1, 2, 4))))
def test_sends_leave_a_switch_as_often_as_counting_finds_around_the_end(cyclic: bool, nodes: int) -> None:
    for num_ranks, stride in EVEN:
        if num_ranks * stride < NUM_RANKS:
            continue  # inside shorter groups the last rank sends to none
        sent = Counter(
            part_of(rank, nodes, cyclic=cyclic)
            for rank in range(NUM_RANKS)
            if part_of(rank, nodes, cyclic=cyclic) != part_of((rank + stride) % NUM_RANKS, nodes, cyclic=cyclic)
        )
        share = float(places(num_ranks, stride, cyclic=cyclic).share_sent_out(nodes)[0])
        assert share * nodes * PER_NODE == pytest.approx(max(sent.values(), default=0)), (num_ranks, stride)


def exposed(wire_s: float, window_s: float, num_parts: float) -> float:
    return float(exposed_s(np.array([wire_s]), np.array([window_s]), np.array([num_parts]))[0])


def bucketed_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is reduced when it is computed and the part before it is reduced."""
    reduced_s = 0.0
    for part in range(1, num_parts + 1):
        reduced_s = max(reduced_s, part * window_s / num_parts) + wire_s / num_parts
    return reduced_s - window_s


def prefetched_s(wire_s: float, window_s: float, num_parts: int) -> float:
    """The same by events: a part is computed when it is gathered, and the next is gathered meanwhile."""
    clock_s = wire_s / num_parts
    for _ in range(num_parts - 1):
        clock_s += max(window_s / num_parts, wire_s / num_parts)
    return clock_s + window_s / num_parts - window_s


def test_the_last_part_is_exposed_and_everything_without_a_window() -> None:
    assert exposed(2.0, 0.0, 4) == 2.0
    assert exposed(2.0, 100.0, 4) == 0.5
    assert exposed(2.0, 100.0, 1) == 2.0


@pytest.mark.parametrize("wire_s", [0.0, 0.5, 1.0, 1.3, 7.0])
@pytest.mark.parametrize("num_parts", [1, 2, 5, 33])
def test_bucketed_reductions_and_prefetched_gathers_follow_one_law(wire_s: float, num_parts: int) -> None:
    # sums of the same terms in another order: rounding only
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(bucketed_s(wire_s, 1.0, num_parts), abs=1e-12)
    assert exposed(wire_s, 1.0, num_parts) == pytest.approx(prefetched_s(wire_s, 1.0, num_parts), abs=1e-12)


@pytest.mark.parametrize(("kind", "share"), [("cuda", 1.0), ("rocm", 1.0), ("cpu", 0.0)])
def test_a_core_that_computes_cannot_send_meanwhile(kind: str, share: float) -> None:
    accelerator = cpu_cluster().accelerator if kind == "cpu" else h100(kind=kind)
    assert overlap_share(accelerator) == share


RANKS = 4
BLOCK_BYTES = 2 * 8192 / RANKS * 2 * 8 * 128
"""Keys and values of a rank's tokens, in bf16."""

SUMS_BYTES = 2 * BLOCK_BYTES
"""Their gradients, in fp32."""


def exchange(way: ContextExchange, core_s: float, *, ranks: int = RANKS) -> ExchangeTimes:
    x = columns(Layout(context_parallel_degree=ranks, context_exchange=way))
    return exchange_times(x, big_job(), np.array([core_s]), np.array([2 * core_s]))


def group() -> Group:
    return context_group(columns(Layout(context_parallel_degree=RANKS)), big_job().cluster)


@pytest.mark.parametrize("way", list(ContextExchange))
def test_a_rank_alone_exchanges_nothing(way: ContextExchange) -> None:
    layouts = [Layout(context_exchange=way), Layout(context_parallel_degree=2, context_exchange=way)]
    times = exchange_times(columns(*layouts), big_job(), np.zeros(2), np.zeros(2))
    assert times.forward_s[0] == times.backward_s[0] == 0.0 < times.forward_s[1]
    assert first(exchange(way, 1.0, ranks=1).forward_s) == 0.0


def test_context_ranks_gather_or_pass_heads_or_blocks_as_their_way_says() -> None:
    block_s, both_s, sums_s = (
        first(send_s(np.array([sent]), group())) for sent in (BLOCK_BYTES, BLOCK_BYTES + SUMS_BYTES, SUMS_BYTES)
    )
    bare, hidden = exchange(ContextExchange.RING, 0.0), exchange(ContextExchange.RING, 1.0)
    assert first(bare.forward_s) == pytest.approx((RANKS - 1) * block_s, rel=1e-12)  # rounding
    assert first(bare.backward_s) == pytest.approx((RANKS - 1) * both_s + sums_s, rel=1e-12)  # rounding
    assert first(hidden.forward_s) == 0.0
    assert first(hidden.backward_s) == pytest.approx(sums_s, rel=1e-12)  # the gradients' last way home
    gather_s = first(all_gather_s(np.array([RANKS * BLOCK_BYTES]), group()))
    scatter_s = first(reduce_scatter_s(np.array([RANKS * SUMS_BYTES]), group()))
    for core_s in (0.0, 1.0):
        times = exchange(ContextExchange.ALL_GATHER, core_s)
        assert first(times.forward_s) == pytest.approx(gather_s, rel=1e-12)  # rounding
        assert first(times.backward_s) == pytest.approx(scatter_s, rel=1e-12)  # rounding
    job = on_stack(big_job(), widens_context_gradients=False)
    for way in (ContextExchange.RING, ContextExchange.ALL_GATHER):
        x = columns(Layout(context_parallel_degree=RANKS, context_exchange=way))
        narrow = exchange_times(x, job, np.zeros(1), np.zeros(1))
        assert first(narrow.backward_s) < first(exchange(way, 0.0).backward_s)
        assert first(narrow.forward_s) == first(exchange(way, 0.0).forward_s)
    per_element = 2 * 8192 / RANKS
    sizes = [per_element * width for width in (8192, 8 * 128, 8 * 128, 8192)]
    once_s = sum(first(all_to_all_s(np.array([size]), group())) for size in sizes)
    assert first(exchange(ContextExchange.ALL_TO_ALL, 1.0).forward_s) == pytest.approx(once_s, rel=1e-12)  # rounding
    x = columns(Layout(context_parallel_degree=2))
    times = exchange_times(x, tiny_job(2), np.array([1.0]), np.array([1.0]))
    assert first(times.forward_s) > 0.0


EXPERTS = MixtureOfExperts(num_experts=64, experts_per_token=8, expert_ffn_size=1024)


def job(experts: MixtureOfExperts = EXPERTS, **stack: Any) -> Job:
    return with_stack(replace(big_job(), model=llama_70b(experts=experts)), **stack)


def dispatch(layout: Layout, one: Job) -> float:
    return first(dispatch_s(columns(layout), one))


def test_experts_receive_copies_once_per_rank_and_node_later_where_the_load_is_uneven() -> None:
    assert dispatch(Layout(), job()) == 0.0
    assert dispatch(Layout(tensor_parallel_degree=4, sequence_parallel=True), job(splits_experts=True)) == 0.0
    every, once = (dispatch(apart(32), job(dispatch=way)) for way in ("all_to_all", "deduplicated"))
    # 8 choices name 3.6 of 4 nodes, and of the tokens a rank sends to the 24 ranks of others as many leave its node
    assert once == pytest.approx(every * 3.6 / 8, rel=0.1)
    even, uneven = (dispatch(apart(64), job(expert_imbalance=imbalance)) for imbalance in (1.0, 1.5))
    assert 1.3 * even < uneven < 1.5 * even  # but for latency
    layout = apart(2, tensor_parallel_degree=4, sequence_parallel=True)
    whole, split = (dispatch(layout, job(splits_experts=flag)) for flag in (False, True))
    assert split > 2 * whole
    groups = columns(layout)
    dense = first(layer_tensor_s(groups, job(), sparse=False))
    routed = first(layer_tensor_s(groups, job(), sparse=True))
    shared = first(layer_tensor_s(groups, job(replace(EXPERTS, num_shared_experts=1)), sparse=True))
    assert (routed, shared) == (dense / 2, dense)
    sent, computed = np.array([1.0, 1.0]), np.array([10.0, 0.5])
    assert exposed_dispatch_s(job(hides_dispatch=0.8), sent, computed) == pytest.approx([0.2, 0.5])
    assert exposed_dispatch_s(job(), sent, computed).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("way", ["all_to_all", "deduplicated", "all_gather"])
def test_experts_on_other_nodes_are_far(way: Any) -> None:
    near, far = (dispatch(apart(ranks), job(dispatch=way)) for ranks in (8, 16))
    assert far > 1.5 * near  # NVLink against a network port of a ninth of its bandwidth
