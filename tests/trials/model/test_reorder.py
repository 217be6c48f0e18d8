from __future__ import annotations

import torch

from trials.model.reorder import inverse, reordered


def test_rows_and_their_gradients_go_there_and_back() -> None:
    order = torch.tensor([2, 0, 3, 1])
    back = inverse(order)
    rows = torch.arange(8.0).view(4, 2).requires_grad_()
    there = reordered(rows, order, back)
    assert torch.equal(there, rows[order])
    assert torch.equal(reordered(there, back, order), rows)
    weights = torch.arange(4.0)[:, None]
    torch.autograd.backward([(there * weights).sum()])
    assert rows.grad is not None
    assert torch.equal(rows.grad, weights[back].expand(4, 2))
