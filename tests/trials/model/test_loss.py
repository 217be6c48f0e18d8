from __future__ import annotations

import math

import pytest
import torch

from trials.batches.micro_batch import NO_LABEL
from trials.model.loss import cross_entropy


def test_equal_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    loss = cross_entropy(torch.zeros(2, 3, 10), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(6 * math.log(10), rel=1e-6)  # a few fp32 roundings


def test_a_token_without_a_label_costs_nothing() -> None:
    labels = torch.tensor([[1, NO_LABEL, 2]])
    logits = torch.randn(1, 3, 10, generator=torch.Generator().manual_seed(0))
    kept = cross_entropy(logits[:, [0, 2]], labels[:, [0, 2]])
    assert torch.equal(cross_entropy(logits, labels), kept)


def test_bf16_logits_are_judged_in_fp32() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(cross_entropy(logits, labels), cross_entropy(logits.float(), labels))
