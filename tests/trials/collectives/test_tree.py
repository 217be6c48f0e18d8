from __future__ import annotations

import math

import pytest

from trials.collectives.tree import Branch, branches


@pytest.mark.parametrize("size", range(1, 34))
@pytest.mark.parametrize("number", [0, 1])
def test_every_rank_hangs_below_one_root_at_the_depth_of_a_binary_tree(size: int, number: int) -> None:
    tree = [branches(rank, size)[number] for rank in range(size)]
    depths = [_depth(tree, rank) for rank in range(size)]
    assert depths.count(0) == 1
    assert max(depths) <= math.ceil(math.log2(size)) + 1
    assert all(tree[child].parent == rank for rank, branch in enumerate(tree) for child in branch.children)
    assert sum(len(branch.children) for branch in tree) == size - 1


@pytest.mark.parametrize("size", range(2, 34))
def test_nobody_has_children_in_both_trees_but_the_first_of_an_odd_number(size: int) -> None:
    both = [rank for rank in range(size) if all(branch.children for branch in branches(rank, size))]
    assert both == ([0] if size % 2 else [])


def _depth(tree: list[Branch], rank: int) -> int:
    parent = tree[rank].parent
    return 0 if parent is None else 1 + _depth(tree, parent)
