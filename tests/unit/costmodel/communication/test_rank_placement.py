"""Tests of ``autotuner.costmodel.communication.rank_placement``."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from autotuner.costmodel.communication.rank_placement import Windows

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
def test_rings_that_leave_the_fullest_part_are_as_many_as_counted(size: int) -> None:
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).rings_out(), strict=True):
        left: Counter[int] = Counter()
        for group in groups(num_ranks, stride):
            met = {rank // size for rank in group}
            left.update(met if len(met) > 1 else ())
        assert found == max(left.values(), default=0), (num_ranks, stride)


@pytest.mark.parametrize("size", SIZES)
def test_sends_that_leave_the_fullest_part_are_as_many_as_counted(size: int) -> None:
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).sends_out(), strict=True):
        pairs = (pair for group in groups(num_ranks, stride) for pair in pairwise(group))
        sent = Counter(one // size for one, other in pairs if one // size != other // size)
        assert found == max(sent.values(), default=0), (num_ranks, stride)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_that_leave_the_fullest_part_in_equal_shares_are_as_many_as_counted(size: int) -> None:
    for (num_ranks, stride), found in zip(UNEVEN, windows(size).shares_out(), strict=True):
        sent: Counter[int] = Counter()
        for group in groups(num_ranks, stride):
            inside = Counter(rank // size for rank in group)
            sent.update({part: count * (num_ranks - count) for part, count in inside.items()})
        assert found * num_ranks == pytest.approx(max(sent.values(), default=0)), (num_ranks, stride)
