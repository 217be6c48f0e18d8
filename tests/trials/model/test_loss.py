from __future__ import annotations

import math

import pytest
import torch

from trials.model.loss import cross_entropy


def test_equal_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    loss = cross_entropy(torch.zeros(2, 3, 10), torch.zeros(2, 3, dtype=torch.long))
    assert loss.item() == pytest.approx(math.log(10), rel=1e-6)  # one fp32 rounding


def test_bf16_logits_are_judged_in_fp32() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.zeros(2, 3, dtype=torch.long)
    assert torch.equal(cross_entropy(logits, labels), cross_entropy(logits.float(), labels))
