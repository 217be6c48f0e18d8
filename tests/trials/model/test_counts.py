from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trials.model.counts import on_host, tally


def test_indices_are_counted_and_absent_ones_too() -> None:
    assert on_host(tally(torch.tensor([2, 0, 2]), 4), total=3) == [1, 0, 2, 0]


def test_without_values_nobody_has_a_preference() -> None:
    with FakeTensorMode():
        counts = tally(torch.zeros(7, dtype=torch.long), 3)
    assert on_host(counts, total=7) == [3, 2, 2]
