"""Dominance: which rows no other beats in all that counts. More is better, in every column."""

from __future__ import annotations

import numpy as np

from autotuner.core.columns import Booleans, Floats, Integers


def non_dominated(values: Floats) -> Booleans:
    """Which rows no other row dominates: none is as good in every column and better in one; equal rows stay together.

    Args:
        values: Shape (rows, columns); takes time in proportion to rows x rows that stay.
    """
    stays = np.zeros(len(values), dtype=np.bool_)
    # Whatever comes first in this order is dominated by nothing behind it.
    left = np.lexsort(values.T[::-1])[::-1]
    while left.size:
        first, rest = values[left[0]], values[left]
        is_equal = (rest == first).all(axis=1)
        stays[left[is_equal]] = True
        left = left[(rest > first).any(axis=1)]
    return stays


def dominators(values: Floats, row: int) -> Integers:
    """The rows that are as good as this one in every column and better in one."""
    as_good, better = (values >= values[row]).all(axis=1), (values > values[row]).any(axis=1)
    return np.flatnonzero(as_good & better)
