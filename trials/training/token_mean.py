"""TokenMean: the loss of a micro-batch as its share of the mean over all tokens of the global batch."""

from __future__ import annotations

from torch import Tensor

from trials.model.loss import Loss


class TokenMean:
    """Summed losses over the tokens of a step, which differ from step to step where sequences do.

    Attributes:
        tokens_per_loss: Those of the step that runs, as ``Batch`` has them.
    """

    def __init__(self, total: Loss) -> None:
        self._total = total
        self.tokens_per_loss = 1.0

    def __call__(self, logits_BSV: Tensor, labels_BS: Tensor) -> Tensor:
        """The share of a micro-batch."""
        return self._total(logits_BSV, labels_BS) / self.tokens_per_loss
