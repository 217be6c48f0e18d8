from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trials.model.routing import count_on_host, histogram, inverse, permuted


def test_indices_are_counted_and_absent_ones_too() -> None:
    assert count_on_host(histogram(torch.tensor([2, 0, 2]), 4), total=3) == [1, 0, 2, 0]


def test_without_values_nobody_has_a_preference() -> None:
    with FakeTensorMode():
        counts = histogram(torch.zeros(7, dtype=torch.long), 3)
    assert count_on_host(counts, total=7) == [3, 2, 2]


def test_rows_and_their_gradients_go_there_and_back() -> None:
    order = torch.tensor([2, 0, 3, 1])
    back = inverse(order)
    rows = torch.arange(8.0).view(4, 2).requires_grad_()
    there = permuted(rows, order, back)
    assert torch.equal(there, rows[order])
    assert torch.equal(permuted(there, back, order), rows)
    weights = torch.arange(4.0)[:, None]
    torch.autograd.backward([(there * weights).sum()])
    assert rows.grad is not None
    assert torch.equal(rows.grad, weights[back].expand(4, 2))
