from __future__ import annotations

from autotuner.core.choices import RankPlacement
from autotuner.core.placement import Nodes
from trials.collectives.groups import levels_of

NODES = Nodes(num_nodes=2, ranks_per_node=3)


def test_a_group_is_seen_node_by_node_and_column_by_column() -> None:
    levels = levels_of((5, 0, 1, 4), NODES)
    assert levels.by_node == ((5, 4), (0, 1))
    assert levels.columns == ((5, 0), (4, 1))
    assert levels.order == [0, 1, 3, 2]
    assert levels.are_even
    assert not levels.are_one


def test_a_group_on_one_node_or_with_one_rank_on_each_has_one_level() -> None:
    cyclic = Nodes(num_nodes=2, ranks_per_node=3, placement=RankPlacement.CYCLIC)
    assert levels_of((0, 1, 2), NODES).are_one
    assert levels_of((0, 3), NODES).are_one
    assert not levels_of((0, 1, 2), cyclic).are_one
    assert not levels_of((0, 1, 2), cyclic).are_even
