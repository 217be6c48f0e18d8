"""Groups that deal are those that the layout names, or the ranks of a node."""

from __future__ import annotations

from typing import Any

import pytest

from autotuner.batches.groups import dealing_ranks
from autotuner.core.choices import BatchBalance
from autotuner.core.layout import Layout


@pytest.mark.parametrize(
    ("choices", "num_dealing_ranks"),
    [
        ({"data_parallel_replicate_degree": 32}, 8),
        ({"data_parallel_replicate_degree": 32, "num_dealing_ranks": 16}, 16),
        ({"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 8, "tensor_parallel_degree": 2}, 4),
        ({"data_parallel_replicate_degree": 6}, 6),  # a node holds them all
        ({"data_parallel_replicate_degree": 12}, 4),  # groups of 8 would not divide them
        ({"data_parallel_replicate_degree": 4, "tensor_parallel_degree": 16}, 1),
    ],
)
def test_a_node_s_ranks_deal_among_each_other(choices: dict[str, Any], num_dealing_ranks: int) -> None:
    layout = Layout(batch_balance=BatchBalance.SNAKE, **choices)
    assert dealing_ranks(layout, devices_per_node=8) == num_dealing_ranks
