from __future__ import annotations

from typing import Any

import pytest
import torch

from autotuner.domain.jobs.workload import Workload
from trials.distributed.context.zigzag import ContextPart
from trials.training.data import Batch, batch

WORKLOAD = Workload(seq_len=12, global_batch_size=8)


def draw(replica: int = 0, num_replicas: int = 1, **changes: Any) -> Batch:
    values: dict[str, Any] = {"vocab_size": 50, "seed": 1, "step": 0, "device": torch.device("cpu"), **changes}
    return batch(WORKLOAD, data_parallel_rank=replica, data_parallel_degree=num_replicas, **values)


@pytest.mark.parametrize("num_replicas", [2, 4, 8])
def test_the_slices_of_all_replicas_are_the_global_batch(num_replicas: int) -> None:
    slices = [draw(replica, num_replicas) for replica in range(num_replicas)]
    assert torch.equal(torch.cat([s.tokens_BS for s in slices]), draw().tokens_BS)
    assert torch.equal(torch.cat([s.labels_BS for s in slices]), draw().labels_BS)


def test_context_ranks_hold_the_parts_of_every_sequence_with_the_tokens_that_follow() -> None:
    whole = draw()
    parts = [ContextPart(rank=rank, num_ranks=3) for rank in range(3)]
    for part in parts:
        share, positions = draw(part=part), part.positions(12)
        assert torch.equal(share.tokens_BS, whole.tokens_BS[:, positions])
        assert torch.equal(share.labels_BS, whole.labels_BS[:, positions])


def test_a_label_is_the_token_that_follows() -> None:
    whole = draw()
    assert torch.equal(whole.labels_BS[:, :-1], whole.tokens_BS[:, 1:])


@pytest.mark.parametrize("change", [{"step": 1}, {"seed": 2}])
def test_another_step_or_seed_is_another_batch(change: dict[str, int]) -> None:
    assert not torch.equal(draw().tokens_BS, draw(**change).tokens_BS)


def test_no_two_sequences_of_a_batch_are_equal() -> None:
    assert len(torch.unique(draw().tokens_BS, dim=0)) == 8


def test_tokens_lie_in_the_vocabulary_and_low_ones_are_frequent() -> None:
    tokens = torch.cat([draw(step=step).tokens_BS for step in range(20)])
    assert int(tokens.min()) == 0
    assert int(tokens.max()) < 50
    assert float((tokens < 25).float().mean()) > 0.7  # 2^(-1/3) = 0.79 is expected, over 1920 draws


def test_micro_batches_are_the_batch_in_order() -> None:
    whole = draw()
    parts = list(whole.micro_batches(2))
    assert torch.equal(torch.cat([tokens for tokens, _ in parts]), whole.tokens_BS)
    assert torch.equal(torch.cat([labels for _, labels in parts]), whole.labels_BS)
    assert [len(tokens) for tokens, _ in parts] == [2, 2, 2, 2]
