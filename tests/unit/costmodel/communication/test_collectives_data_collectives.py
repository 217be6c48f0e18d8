"""Flat and two-level collectives of data-parallel ranks, by the bytes that leave a node and the time these take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotuner.core.choices import CollectiveAlgorithm, CollectiveHierarchy, RankPlacement, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.columns import LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.link import Link
from autotuner.core.network import Network
from autotuner.core.stages import num_pieces
from autotuner.core.units import MIB
from autotuner.costmodel.communication.collectives import (
    all_gather_s,
    all_reduce_s,
    data_all_gather_s,
    data_all_reduce_s,
    data_reduce_scatter_s,
    reduce_scatter_s,
)
from autotuner.costmodel.communication.group import TREE_WAIT, Group
from autotuner.costmodel.communication.layout_groups import replicate_group, shard_group
from tests.builders import cpu_cluster, h100_cluster

PORT_BYTES_PER_S = 25e6
TWO_LEVEL = CollectiveHierarchy.TWO_LEVEL
MIB_8 = np.array([8.0 * 2**20])


def link(name: str, bandwidth_bytes_per_s: float, **changes: Any) -> Link:
    return Link(name=name, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=0.0, efficiency=1.0, **changes)


def two_slow_nodes() -> Cluster:
    """Two nodes of two cores, which share a port of 200 Mbit/s; inside a node bytes take no time to speak of."""
    inside, port = link("memory", 1e15), link("port", PORT_BYTES_PER_S / 2)
    return cpu_cluster(2, num_nodes=2, intra_node_link=inside, inter_node_link=port)


def two_gpu_nodes(**network: Any) -> Cluster:
    inside, port = link("nvlink", 4e12), link("port", 40e9)  # ten times as fast inside: ports decide
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
        (
            {"collective_algorithm": CollectiveAlgorithm.TREE},
            2.0 * TREE_WAIT,
        ),  # two edges of each lie between
        ({"collective_hierarchy": TWO_LEVEL}, 1.0),
        ({"collective_hierarchy": TWO_LEVEL, "rank_placement": RankPlacement.CYCLIC}, 1.0),
    ],
    ids=str,
)
def test_between_two_slow_nodes_an_all_reduce_takes_what_leaves_a_node(
    changes: dict[str, Any], times_sent: float
) -> None:
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
def test_on_cores_the_longer_level_is_always_at_work_and_a_piece_of_the_other_shows(
    inside_bytes_per_s: float, mib: float
) -> None:
    layout = Layout(data_parallel_shard_degree=4, shard_level=ShardLevel.PARAMETERS, collective_hierarchy=TWO_LEVEL)
    full_bytes = np.array([mib * MIB])
    cluster = replace(two_slow_nodes(), intra_node_link=link("memory", inside_bytes_per_s))
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


def test_switches_of_the_network_add_with_half_the_bytes_of_a_ring() -> None:
    ring = Layout(data_parallel_replicate_degree=16, collective_algorithm=CollectiveAlgorithm.RING)
    (ring_s,) = data_all_reduce_s(np.array([1e9]), *group_and_columns(ring, two_gpu_nodes(adds=True)))
    added = replace(ring, collective_algorithm=CollectiveAlgorithm.COLLNET)
    (added_s,) = data_all_reduce_s(np.array([1e9]), *group_and_columns(added, two_gpu_nodes(adds=True)))
    # each of 8 ports: its eighth of the bytes once, at 0.9 of its rate; the ring, 2 (n - 1) / n of them
    assert added_s == pytest.approx(1e9 / 8 / 40e9 / 0.9)
    assert ring_s == pytest.approx(2 * 15 / 16 * 1e9 / 8 / 40e9)


def test_a_group_inside_a_node_has_no_network_that_adds() -> None:
    asked = Layout(data_parallel_replicate_degree=8, collective_algorithm=CollectiveAlgorithm.COLLNET)
    ring = replace(asked, collective_algorithm=CollectiveAlgorithm.RING)
    cluster = replace(two_gpu_nodes(adds=True))
    assert data_all_reduce_s(MIB_8, *group_and_columns(asked, cluster)) == data_all_reduce_s(
        MIB_8, *group_and_columns(ring, cluster)
    )
