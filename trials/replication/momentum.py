"""The momentum that a replica keeps, of which it sends a part and remembers the rest (error feedback)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from autotuner.core.errors import InvalidInput
from trials.replication.replicator import ReplicatorState
from trials.replication.rows import Rows


class Momentum:
    """``m = decay * m + gradient`` in rows; whoever sends a part subtracts it.

    Attributes:
        rows: Where the tensors lie.
        matrix: The momentum, fp32, ``[rows.num_rows, rows.width]``.
        num_steps: How many gradients it has taken.

    Raises:
        InvalidInput: ``decay`` is not in 0..1.

    Source: arXiv 2411.19870, algorithm 1, without its learning rate: what follows either takes the sign or is AdamW,
    and neither sees a factor.
    """

    def __init__(self, tensors: Sequence[Tensor], *, width: int, decay: float) -> None:
        if not 0.0 <= decay <= 1.0:
            nearest = min(max(decay, 0.0), 1.0)
            raise InvalidInput("decay", decay, "must be in 0..1: the share of a momentum that is kept", nearest=nearest)
        self.rows = Rows(tensors, width)
        self.matrix = self.rows.zeros()
        self.num_steps = 0
        self._decay = decay
        self._elements = self.rows.elements(self.matrix)
        self._filling = self.rows.filling(self.matrix)

    @torch.no_grad()
    def add(self, gradients: Sequence[Tensor]) -> None:
        """Take the gradients of a step."""
        self.matrix.mul_(self._decay)
        for held, gradient in zip(self._elements, gradients, strict=True):
            held.add_(gradient)
        self.num_steps += 1

    @torch.no_grad()
    def subtract(self, sent: Tensor) -> None:
        """Forget what is sent, a matrix; what a cosine puts into the filling is nobody's residual."""
        self.matrix.sub_(sent)
        for filling in self._filling:
            filling.zero_()

    def state_dict(self) -> ReplicatorState:
        """Residuals by tensor, so that other widths can go on with them."""
        return ReplicatorState(residuals=[held.clone() for held in self._elements], num_steps=self.num_steps)

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Go on from these residuals.

        Raises:
            InvalidInput: They have other shapes.
        """
        self.rows.load(self.matrix, state["residuals"])
        self.num_steps = state["num_steps"]
