from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.trials.collective import Noted
from trials.runtime.pending import future_of


def test_a_backward_pass_ends_when_the_collectives_are_over_whose_futures_its_hooks_took() -> None:
    collective, weight = Noted(torch.ones(1)), torch.ones(1, requires_grad=True)
    seen_in_hook = []

    def hook(gradient: Tensor) -> Tensor:
        (result,) = future_of(collective).value()
        seen_in_hook.append(collective.was_awaited)
        return gradient + result

    _backward(weight, hook)
    assert seen_in_hook == [False]
    assert collective.was_awaited
    assert weight.grad == 3.0


def test_a_collective_that_fails_fails_the_backward_pass() -> None:
    class Failing(Noted):
        def wait(self) -> None:
            raise RuntimeError("peer is gone")

    with pytest.raises(RuntimeError, match="peer is gone"):
        _backward(torch.ones(1, requires_grad=True), lambda gradient: future_of(Failing(gradient)).value()[0])


def _backward(weight: Tensor, hook: Callable[[Tensor], Tensor]) -> None:
    weight.register_hook(hook)  # type: ignore[no-untyped-call]
    weight.square().sum().backward()  # type: ignore[no-untyped-call]
