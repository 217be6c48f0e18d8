"""Momentum with error feedback: the memory of a replica for gradients that were not sent, as one matrix of rows.

Shapes: R rows (chunks of elements), C elements of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TypedDict, TypeVar

import torch
from torch import Tensor

from autotuner.core.errors import InvalidInput


class Rows:
    """Maps tensors to rows of one matrix of shape ``[num_rows, width]``.

    Every tensor begins at the start of a row. If a tensor does not fill its last row, zeros fill the rest. Therefore
    the result for one tensor does not depend on the other tensors, and the copies of a tensor on several
    tensor-parallel ranks stay equal.

    Raises:
        InvalidInput: ``width < 1``, no tensors, or tensors on several devices.

    Example:
        >>> rows = Rows([torch.zeros(3), torch.zeros(2, 2)], 2)
        >>> rows.zeros().shape
        torch.Size([4, 2])
    """

    def __init__(self, tensors: Sequence[Tensor], width: int) -> None:
        if width < 1:
            raise InvalidInput("width", width, "must be 1 or more, the number of elements in a row", nearest=1)
        devices = {tensor.device for tensor in tensors}
        if len(devices) != 1:
            raise InvalidInput("tensors", sorted(map(str, devices)), "must all be on the same device")
        (self.device,) = devices
        self.width = width
        self.num_rows_of = tuple(-(-tensor.numel() // width) for tensor in tensors)
        self.num_rows = sum(self.num_rows_of)
        self._shapes = [tensor.shape for tensor in tensors]

    def zeros(self) -> Tensor:
        """Return an fp32 matrix of zeros with one place for every element of the tensors."""
        return torch.zeros(self.num_rows, self.width, device=self.device)

    def elements(self, matrix_RC: Tensor) -> list[Tensor]:
        """Return a view of the matrix for each tensor whose elements it holds, with the shape of that tensor."""
        pieces = zip(self._pieces(matrix_RC), self._shapes, strict=True)
        return [piece[: shape.numel()].view(shape) for piece, shape in pieces]

    def padding(self, matrix_RC: Tensor) -> list[Tensor]:
        """Return views of the matrix elements that belong to no tensor. They fill the last row of each tensor."""
        pieces = zip(self._pieces(matrix_RC), self._shapes, strict=True)
        return [rest for piece, shape in pieces if (rest := piece[shape.numel() :]).numel() > 0]

    @torch.no_grad()
    def load(self, matrix_RC: Tensor, tensors: Sequence[Tensor]) -> None:
        """Copy the values of these tensors into their places in the matrix.

        Raises:
            InvalidInput: The shapes of the tensors differ from those that the constructor got.
        """
        given, expected = [list(tensor.shape) for tensor in tensors], [list(shape) for shape in self._shapes]
        if given != expected:
            raise InvalidInput("state", given, f"must have the same shapes as the tensors, {expected}")
        for view, tensor in zip(self.elements(matrix_RC), tensors, strict=True):
            view.copy_(tensor)

    def _pieces(self, matrix_RC: Tensor) -> list[Tensor]:
        flat = matrix_RC.view(-1)
        ends = accumulate((num_rows * self.width for num_rows in self.num_rows_of), initial=0)
        return [flat[begin:end] for begin, end in pairwise(ends)]


class ExchangeState(TypedDict):
    """The state that a rank must save to continue a gradient exchange: the unsent gradients and the number of steps.

    It differs between replicas.
    """

    residuals: list[Tensor]
    """Parts of the momentum that were not sent, in the shapes of the gradients; empty if everything is sent."""
    num_steps: int
    """Number of exchanges that were done."""


class Momentum:
    """The momentum of a replica, from which elements are subtracted when they are sent to the other replicas.

    A step sets ``m = decay * m + gradient``. Elements that are not sent remain in the momentum and are sent later
    (error feedback).

    Source: arXiv 2411.19870, algorithm 1, but without the learning rate. The optimizer that follows is AdamW or uses
    only the sign, so that a constant factor has no effect.

    Raises:
        InvalidInput: ``decay`` is not in 0..1.
    """

    def __init__(self, tensors: Sequence[Tensor], *, width: int, decay: float) -> None:
        if not 0.0 <= decay <= 1.0:
            nearest = min(max(decay, 0.0), 1.0)
            raise InvalidInput(
                "decay",
                decay,
                "must be from 0 to 1, the share of the momentum that is kept in each step",
                nearest=nearest,
            )
        self.rows = Rows(tensors, width)
        self.matrix_RC = self.rows.zeros()
        self.num_steps = 0
        self._decay = decay
        self._elements = self.rows.elements(self.matrix_RC)
        self._padding = self.rows.padding(self.matrix_RC)

    @torch.no_grad()
    def add(self, gradients: Sequence[Tensor]) -> None:
        """Multiply the momentum by ``decay`` and add the gradients of one step."""
        self.matrix_RC.mul_(self._decay)
        for held, gradient in zip(self._elements, gradients, strict=True):
            held.add_(gradient)
        self.num_steps += 1

    @torch.no_grad()
    def subtract(self, sent_RC: Tensor) -> None:
        """Subtract the sent elements from the momentum, and set the padding at the ends of tensors to zero.

        A cosine transform may have written into the padding.
        """
        self.matrix_RC.sub_(sent_RC)
        for padding in self._padding:
            padding.zero_()

    def state_dict(self) -> ExchangeState:
        """Return the momentum as one tensor per gradient. A ``Momentum`` with another ``width`` can load this state."""
        return ExchangeState(residuals=[held.clone() for held in self._elements], num_steps=self.num_steps)

    def load_state_dict(self, state: ExchangeState) -> None:
        """Continue from a saved state.

        Raises:
            InvalidInput: The shapes of the saved tensors differ from those of the gradients.
        """
        self.rows.load(self.matrix_RC, state["residuals"])
        self.num_steps = state["num_steps"]


def cosine_basis(width: int, device: torch.device) -> Tensor:
    """Return the matrix ``[component, element]`` of the orthonormal discrete cosine transform (DCT-II).

    The transpose of the matrix is its inverse. For short chunks, a product with this matrix is faster than a fast
    transform, and it runs on every device.

    Example:
        >>> basis_CC = cosine_basis(4, torch.device("cpu"))
        >>> torch.allclose(basis_CC @ basis_CC.T, torch.eye(4), atol=1e-6)
        True
    """
    element = torch.arange(width, dtype=torch.float64)
    component = element.unsqueeze(1)
    basis = torch.cos(math.pi / width * (element + 0.5) * component) * math.sqrt(2.0 / width)
    basis[0] /= math.sqrt(2.0)
    return basis.float().to(device)


# ---------------------------------------------------------------- which element of each row is sent
ChooseOffsets = Callable[[Rows, int], Tensor]
"""A function that returns one offset per row for a step, of shape ``[num_rows, 1]``. All replicas get the same offsets
without communication."""

_Number = TypeVar("_Number", int, Tensor)


def random_offsets(rows: Rows, step: int) -> Tensor:
    """Return one pseudo-random element number per row, of shape ``[num_rows, 1]``, different for every row and step.

    The numbers come from an integer hash. Random generators would return different numbers on different GPU models for
    the same seed, and have more state than the step. The numbers of a tensor do not depend on the row at which the
    tensor begins.
    """
    salts = (_hash(_hash(step) + position) for position in range(len(rows.num_rows_of)))
    first_rows = accumulate(rows.num_rows_of[:-1], initial=0)
    starts = torch.tensor([salt - first for salt, first in zip(salts, first_rows, strict=True)], device=rows.device)
    counts = torch.tensor(rows.num_rows_of, device=rows.device)
    keys = torch.repeat_interleave(starts, counts, output_size=rows.num_rows)
    return (_hash(keys + torch.arange(rows.num_rows, device=rows.device)) % rows.width).unsqueeze(1)


def striding_offsets(rows: Rows, step: int) -> Tensor:
    """Return the same element number for all rows, of shape ``[num_rows, 1]``. The number grows by 1 in each step.

    After the last element of a row, the number starts again at 0. So each element is sent once every ``width`` steps.
    """
    return torch.full((rows.num_rows, 1), step % rows.width, device=rows.device)


def _hash(number: _Number) -> _Number:
    """Return a 32-bit hash, each bit of which depends on every bit of the number. Source: finaliser of MurmurHash3."""
    word = number & 0xFFFF_FFFF
    word = (word ^ (word >> 16)) * 0x85EB_CA6B & 0xFFFF_FFFF
    word = (word ^ (word >> 13)) * 0xC2B2_AE35 & 0xFFFF_FFFF
    return word ^ (word >> 16)
