"""Collectives that a profile timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotuner.core.link import MeasuredCollective
from autotuner.costmodel.communication.collectives import all_gather_s, all_reduce_s
from autotuner.costmodel.communication.measured import without_starts
from autotuner.costmodel.communication.process_groups import group_of
from tests.builders import cpu_cluster


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


def test_a_timed_collective_takes_its_start_and_its_bytes() -> None:
    assert timed_s(2, 1e6, (2, 1e-3, 1e-9), (4, 3e-3, 2e-9)) == pytest.approx(2e-3)


def test_between_the_groups_that_were_timed_lies_a_straight_line() -> None:
    assert timed_s(3, 0.0, (2, 1e-3, 1e-9), (4, 3e-3, 2e-9)) == pytest.approx(2e-3)


def test_a_larger_group_takes_more_steps_of_the_largest_that_was_timed() -> None:
    assert timed_s(7, 1e6, (4, 3e-3, 2e-9)) == pytest.approx(2 * (3e-3 + 2e-3))


def test_one_rank_waits_for_nobody() -> None:
    assert timed_s(1, 1e6, (2, 1e-3, 1e-9)) == 0.0


def test_without_starts_a_collective_takes_what_its_bytes_take() -> None:
    cluster = cpu_cluster()
    link = replace(cluster.intra_node_link, measured=all_reduces((2, 1e-3, 1e-9)))
    group = group_of(np.array([2]), np.array([1]), replace(cluster, intra_node_link=link))
    assert float(all_reduce_s(np.array([1e6]), without_starts(group))[0]) == pytest.approx(1e-3)


def test_a_kind_that_was_not_timed_follows_the_law_of_its_link() -> None:
    cluster = cpu_cluster()
    timed = replace(cluster, intra_node_link=replace(cluster.intra_node_link, measured=all_reduces((2, 1.0, 1.0))))
    num_bytes, groups = np.array([1e6]), [group_of(np.array([2]), np.array([1]), one) for one in (cluster, timed)]
    assert all_gather_s(num_bytes, groups[1]) == all_gather_s(num_bytes, groups[0])


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


def test_without_lines_of_the_network_all_ranks_follow_those_of_the_link_inside() -> None:
    cluster = cpu_cluster(2, num_nodes=2)
    link = replace(cluster.intra_node_link, measured=all_reduces((2, 1e-3, 1e-9)))
    group = group_of(np.array([2, 2]), np.array([1, 2]), replace(cluster, intra_node_link=link))
    assert all_reduce_s(np.zeros(2), group) == pytest.approx(1e-3)
