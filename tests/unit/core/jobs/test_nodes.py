from __future__ import annotations

import pytest

from autotuner.core.jobs.nodes import Nodes
from autotuner.core.layouts.choice import RankPlacement
from autotuner.errors import InvalidInput


def test_blocks_fill_a_node_before_the_next_and_cycles_deal_to_each_in_turn() -> None:
    block = Nodes(num_nodes=2, ranks_per_node=3)
    cyclic = Nodes(num_nodes=2, ranks_per_node=3, placement=RankPlacement.CYCLIC)
    assert [block.node_of(rank) for rank in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [cyclic.node_of(rank) for rank in range(6)] == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("placement", RankPlacement)
def test_every_number_lies_once_on_its_node_and_the_first_stays_where_it_is(placement: RankPlacement) -> None:
    nodes = Nodes(num_nodes=3, ranks_per_node=4, placement=placement)
    numbers = {(node, local): nodes.number_of(node, local) for node in range(3) for local in range(4)}
    assert sorted(numbers.values()) == list(range(12))
    assert all(nodes.node_of(number) == node for (node, _), number in numbers.items())
    assert numbers[0, 0] == 0


def test_nodes_without_ranks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="ranks_per_node"):
        Nodes(num_nodes=2, ranks_per_node=0)
