from __future__ import annotations

import pytest
import torch

from tests.builders import cpu_layout
from trials.distributed.loss import logits_per_token


@pytest.mark.parametrize(("vocab_size", "num_ranks"), [(256, 2), (257, 2), (50257, 8), (9, 4)])
def test_the_parts_of_a_vocabulary_are_what_dtensor_makes_of_it(vocab_size: int, num_ranks: int) -> None:
    chunks = [len(chunk) for chunk in torch.empty(vocab_size).chunk(num_ranks)]
    layout = cpu_layout(tensor_parallel_degree=num_ranks)
    parts = [logits_per_token(layout, vocab_size, rank) for rank in range(num_ranks)]
    assert parts == chunks + [0] * (num_ranks - len(chunks))


def test_every_rank_has_all_logits_where_they_are_gathered() -> None:
    gathered = cpu_layout(tensor_parallel_degree=2, loss_parallel=False)
    assert [logits_per_token(gathered, 257, rank) for rank in range(2)] == [257, 257]
    assert logits_per_token(cpu_layout(), 257, 0) == 257
