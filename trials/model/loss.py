"""Cross-entropy of the next token."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from trials.batches.micro_batch import NO_LABEL

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits_BSV and labels_BS to the sum over all tokens that have a label, in fp32."""


def cross_entropy(logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
    """Sum over all tokens that have a label, computed in fp32 whatever the logits are in.

    A sum, and not a mean: whoever knows the tokens of the whole step divides by them, so that each counts alike.
    """
    return functional.cross_entropy(
        logits_BSV.flatten(0, 1).float(), labels_BS.flatten(), ignore_index=NO_LABEL, reduction="sum"
    )
