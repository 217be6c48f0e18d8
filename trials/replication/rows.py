"""Tensors as rows of one matrix: what works chunk by chunk runs once over all of them.

Each tensor begins at a row of its own, so that what happens to it depends on no other: the copies of one tensor that
tensor-parallel ranks hold stay equal whatever else these ranks hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from autotuner.core.errors import InvalidInput


class Rows:
    """Where the elements of some tensors lie in a matrix of rows of ``width``; the last row of each is filled up.

    Attributes:
        width: Elements of a row.
        num_rows: Of the matrix.
        num_rows_of: Of each tensor.

    Raises:
        InvalidInput: ``width < 1``, or the tensors are none, or lie on several devices.
    """

    def __init__(self, tensors: Sequence[Tensor], width: int) -> None:
        if width < 1:
            raise InvalidInput("width", width, "must be at least 1: rows hold elements", nearest=1)
        devices = {tensor.device for tensor in tensors}
        if len(devices) != 1:
            raise InvalidInput("tensors", sorted(map(str, devices)), "must be tensors of one device")
        (self.device,) = devices
        self.width = width
        self.num_rows_of = tuple(-(-tensor.numel() // width) for tensor in tensors)
        self.num_rows = sum(self.num_rows_of)
        self._shapes = [tensor.shape for tensor in tensors]

    def zeros(self) -> Tensor:
        """A matrix in fp32 whose elements and filling are zero."""
        return torch.zeros(self.num_rows, self.width, device=self.device)

    def elements(self, matrix: Tensor) -> list[Tensor]:
        """The tensors, as views of the matrix."""
        return [
            piece[: shape.numel()].view(shape) for piece, shape in zip(self._cut(matrix), self._shapes, strict=True)
        ]

    def filling(self, matrix: Tensor) -> list[Tensor]:
        """What of the matrix belongs to no tensor, as views of it."""
        pieces = zip(self._cut(matrix), self._shapes, strict=True)
        return [rest for piece, shape in pieces if (rest := piece[shape.numel() :]).numel() > 0]

    @torch.no_grad()
    def load(self, matrix: Tensor, tensors: Sequence[Tensor]) -> None:
        """Copy what was saved into the matrix.

        Raises:
            InvalidInput: They have other shapes.
        """
        saved, held = ([list(shape) for shape in shapes] for shapes in ([one.shape for one in tensors], self._shapes))
        if saved != held:
            raise InvalidInput("state", saved, f"must have the shapes of the tensors, {held}")
        for own, one in zip(self.elements(matrix), tensors, strict=True):
            own.copy_(one)

    def _cut(self, matrix: Tensor) -> list[Tensor]:
        ends = accumulate((rows * self.width for rows in self.num_rows_of), initial=0)
        flat = matrix.view(-1)
        return [flat[first:last] for first, last in pairwise(ends)]
