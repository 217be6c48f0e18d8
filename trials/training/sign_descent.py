"""Sign descent: every element moves by the learning rate, whichever way its gradient says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class SignDescent(torch.optim.Optimizer):
    """``parameter -= learning_rate * sign(gradient)``: no state, no decay of weights.

    What an exchange of few momentum elements leaves at zero stays where it is.

    Source: the sign-SGD update of arXiv 2411.19870, section 3.
    """

    def __init__(self, parameters: Sequence[Tensor], *, learning_rate: float) -> None:
        super().__init__(parameters, {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nobody evaluates the loss again
        """Move every parameter that has a gradient."""
        del closure
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            signs = torch._foreach_sign([parameter.grad for parameter in moved])
            torch._foreach_add_(moved, signs, alpha=-group["lr"])
