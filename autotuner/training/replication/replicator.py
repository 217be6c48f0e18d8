"""What replicas exchange of their gradients in a step, and the momentum that they keep of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol, TypedDict

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput

# What replicas have on its way to each other.

Sending = dist.Work | None
"""Over when everybody's payload is there; None where nobody else is."""


def sum_up(payload: Tensor, group: dist.ProcessGroup) -> Sending:
    """Start to make the payload the sum of everybody's."""
    if group.size() == 1:
        return None
    work: dist.Work = dist.all_reduce(payload, group=group, async_op=True)
    return work


def gather(payload: Tensor, group: dist.ProcessGroup) -> tuple[list[Tensor], Sending]:
    """Start to gather everybody's payloads, which are of one length, in the order of ranks."""
    if group.size() == 1:
        return [payload], None
    payloads = [torch.empty_like(payload) for _ in range(group.size())]
    work: dist.Work = dist.all_gather(payloads, payload, group=group, async_op=True)
    return payloads, work


# What replicas exchange of their gradients in a step, whichever way they do it.


class ReplicatorState(TypedDict):
    """What a rank must keep to go on where it stopped; each replica has its own."""

    residuals: list[Tensor]
    """What of the momentum was not sent, in the shapes of the gradients; none where all of it always is."""
    num_steps: int
    """Exchanges done."""


class Replicator(Protocol):
    """Exchanges the gradients that this rank holds with the ranks that hold the same ones of other replicas."""

    payload_bytes: int
    """What this rank contributed to the latest exchange, before the collective's own factor."""

    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Take this replica's gradients and begin to send; they may be freed or changed afterwards."""

    def finish(self) -> list[Tensor]:
        """What the optimizer takes for gradients: fp32, in their shapes and order, the same bits on every replica.

        What was started has to be there: a hook of DDP hears of it before the work may be waited for.
        """

    def state_dict(self) -> ReplicatorState:
        """The state between two steps, in memory of its own."""

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Go on from a state of a replicator of the same tensors."""


BuildReplicator = Callable[[Sequence[Tensor]], Replicator]
"""From tensors of the shapes and on the device of the gradients: ``partial(DemoReplicator, group=group, top_k=8)``."""


def exchanged(replicator: Replicator, gradients: Sequence[Tensor]) -> list[Tensor]:
    """Start and finish, with nothing in between but waiting."""
    sending = replicator.start(gradients)
    if sending is not None:
        sending.wait()
    return replicator.finish()


# Tensors as rows of one matrix: what works chunk by chunk runs once over all of them.
#
# Each tensor begins at a row of its own, so that what happens to it depends on no other: the copies of one tensor
# that tensor-parallel ranks hold stay equal whatever else these ranks hold.


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


# The momentum that a replica keeps, of which it sends a part and remembers the rest (error feedback).


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


# The exchange that loses nothing: every gradient, every step.


class FullReplicator:
    """One all-reduce per step of all gradients; a ``Replicator``, and what the others are compared with."""

    payload_bytes = 0

    def __init__(
        self, tensors: Sequence[Tensor], group: dist.ProcessGroup, *, payload_dtype: torch.dtype = torch.float32
    ) -> None:
        """Of tensors like these, in a group of the ranks that hold the same ones."""
        self._rows = Rows(tensors, 1)
        self._group = group
        self._payload_dtype = payload_dtype
        self._num_steps = 0
        self._sum: Tensor | None = None

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Start to sum everybody's gradients."""
        payload = torch.cat([gradient.reshape(-1).to(self._payload_dtype) for gradient in gradients])
        self._num_steps += 1
        self._sum = payload
        sending = sum_up(payload, self._group)
        self.payload_bytes = 0 if sending is None else payload.nbytes
        return sending

    def finish(self) -> list[Tensor]:
        """The mean gradients."""
        assert self._sum is not None, "an exchange is started before it is finished"
        mean = self._sum.float() / self._group.size()
        self._sum = None
        return self._rows.elements(mean)

    def state_dict(self) -> ReplicatorState:
        """No residuals: everything was sent."""
        return ReplicatorState(residuals=[], num_steps=self._num_steps)

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Count on from there."""
        self._num_steps = state["num_steps"]
