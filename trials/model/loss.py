"""Cross-entropy of the next token."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

__all__ = ["Loss", "cross_entropy"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits_BSV and labels_BS to the mean over B and S, in fp32."""


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Mean over all tokens, computed in fp32 whatever the logits are in."""
    return functional.cross_entropy(logits_BSV.flatten(0, 1).float(), labels_BS.flatten())
