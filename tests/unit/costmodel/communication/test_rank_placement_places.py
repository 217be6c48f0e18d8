"""Places in closed form beside the same places counted rank by rank."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from autotuner.costmodel.communication.rank_placement import Places

NODES, PER_NODE = 8, 4
WORLD = NODES * PER_NODE
EVEN = [(n, stride) for n, stride in product((2, 4, 8, 16, 32), (1, 2, 4, 8, 16)) if n * stride <= WORLD]


def places(num_ranks: int, stride: int, *, cyclic: bool, sorts: bool = False) -> Places:
    return Places(
        num_ranks=np.array([num_ranks]),
        stride=np.array([stride]),
        is_cyclic=np.array([cyclic]),
        num_nodes=NODES,
        ranks_per_node=PER_NODE,
        sorts_ring=sorts,
    )


def groups(num_ranks: int, stride: int) -> list[list[int]]:
    starts = (first for first in range(WORLD) if first // stride % num_ranks == 0)
    return [[first + stride * i for i in range(num_ranks)] for first in starts]


def part_of(rank: int, nodes: int, *, cyclic: bool) -> int:
    return (rank % NODES if cyclic else rank // PER_NODE) // nodes


@pytest.mark.parametrize(("cyclic", "nodes"), list(product((False, True), (1, 2, 4, 8))))
def test_ranks_of_a_group_below_a_switch_are_those_that_counting_finds(cyclic: bool, nodes: int) -> None:
    for num_ranks, stride in EVEN:
        below = {
            count
            for group in groups(num_ranks, stride)
            for count in Counter(part_of(rank, nodes, cyclic=cyclic) for rank in group).values()
        }
        assert {int(places(num_ranks, stride, cyclic=cyclic).ranks_below(nodes)[0])} == below, (num_ranks, stride)


def leaving(num_ranks: int, stride: int, nodes: int, *, cyclic: bool, sorts: bool) -> int:
    """Times that rings leave the part which they leave most often."""
    left: Counter[int] = Counter()
    for group in groups(num_ranks, stride):
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
        if num_ranks * stride < WORLD:
            continue  # inside shorter groups the last rank sends to none
        sent = Counter(
            part_of(rank, nodes, cyclic=cyclic)
            for rank in range(WORLD)
            if part_of(rank, nodes, cyclic=cyclic) != part_of((rank + stride) % WORLD, nodes, cyclic=cyclic)
        )
        share = float(places(num_ranks, stride, cyclic=cyclic).share_sent_out(nodes)[0])
        assert share * nodes * PER_NODE == pytest.approx(max(sent.values(), default=0)), (num_ranks, stride)
