from __future__ import annotations

import pytest
import torch

from trials.distributed.context import WHOLE, ContextPart


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_what_all_ranks_hold_is_the_sequence(num_ranks: int) -> None:
    parts = [ContextPart(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    held = torch.cat([part.positions(12) for part in parts])
    assert held.sort().values.tolist() == list(range(12))
    assert WHOLE.positions(12).tolist() == list(range(12))


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_gathered_sequence_is_put_in_order_and_back(num_ranks: int) -> None:
    parts = [ContextPart(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    held = torch.cat([part.positions(12) for part in parts])
    assert torch.equal(parts[0].in_order(held, 0), torch.arange(12))
    assert torch.equal(parts[0].by_rank(torch.arange(12), 0), held)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_causal_attention_is_the_same_work_for_every_rank(num_ranks: int) -> None:
    pairs = {
        int((ContextPart(rank=rank, num_ranks=num_ranks).positions(64) + 1).sum())  # a token sees itself and all before
        for rank in range(num_ranks)
    }
    assert len(pairs) == 1
