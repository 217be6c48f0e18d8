from __future__ import annotations

import math

import pytest
import torch

from tests.builders import cpu_layout
from trials.model.loss import cross_entropy, logits_per_token


def test_equal_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    loss = cross_entropy(torch.zeros(2, 3, 10), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(math.log(10), rel=1e-6)  # one fp32 rounding


def test_bf16_logits_are_judged_in_fp32() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(cross_entropy(logits, labels), cross_entropy(logits.float(), labels))


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
