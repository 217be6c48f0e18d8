"""Decoupled momentum: replicas exchange the largest cosine components of each chunk of what they remember.

Shapes: R rows (chunks), C elements or components of a chunk, K components sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput
from autotuner.core.stages import BYTE_INDEXED_CHUNK
from autotuner.training.replication.replicator import Momentum, ReplicatorState, Sending, gather

# Cosine components of chunks: which of them move fast, and back.


def cosine_basis(width: int, device: torch.device) -> Tensor:
    """The orthonormal discrete cosine transform (type II) as a matrix ``[component, element]``, its inverse transposed.

    A product with it is faster than a fast transform for chunks as short as ours, and runs on every device.
    """
    element = torch.arange(width, dtype=torch.float64)
    component = element.unsqueeze(1)
    basis = torch.cos(math.pi / width * (element + 0.5) * component) * math.sqrt(2.0 / width)
    basis[0] /= math.sqrt(2.0)
    return basis.float().to(device)


_LARGEST_CHUNK = 2**15
"""Components whose numbers fit into two bytes with a sign."""


class DemoReplicator:
    """One all-gather per step of the components' numbers and values; a ``Replicator``.

    A component becomes the mean of those replicas that sent it.

    Source: arXiv 2411.19870, algorithm 1, over flat chunks of the shard that a rank holds, as in arXiv 2502.06728.
    """

    payload_bytes = 0

    def __init__(
        self,
        tensors: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        chunk: int = 64,
        top_k: int = 4,
        decay: float = 0.999,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Of tensors like these, in a group of the ranks that hold the same ones.

        Raises:
            InvalidInput: ``top_k`` is not in 1..chunk, or ``chunk`` beyond two bytes.
        """
        if chunk > _LARGEST_CHUNK:
            rule = f"must be at most {_LARGEST_CHUNK}: the number of a component is sent in two bytes"
            raise InvalidInput("chunk", chunk, rule, nearest=_LARGEST_CHUNK)
        self._momentum = Momentum(tensors, width=chunk, decay=decay)
        if not 1 <= top_k <= chunk:
            nearest = min(max(top_k, 1), chunk)
            raise InvalidInput("top_k", top_k, f"must be in 1..{chunk}, the components of a chunk", nearest=nearest)
        self._group = group
        self._top_k = top_k
        self._payload_dtype = payload_dtype
        self._index_dtype = torch.uint8 if chunk <= BYTE_INDEXED_CHUNK else torch.int16
        self._basis_CC = cosine_basis(chunk, self._momentum.rows.device)
        self._gathered: list[Tensor] = []

    @torch.no_grad()
    def start(self, gradients: Sequence[Tensor]) -> Sending:
        """Choose the largest components of the momentum, forget them, and start to gather everybody's."""
        self._momentum.add(gradients)
        components_RC = self._momentum.matrix @ self._basis_CC.T
        chosen_RK = components_RC.abs().topk(self._top_k, dim=1, sorted=False).indices
        values_RK = components_RC.gather(1, chosen_RK).to(self._payload_dtype)
        sent_RC = torch.zeros_like(components_RC).scatter_(1, chosen_RK, values_RK.float())
        self._momentum.subtract(sent_RC @ self._basis_CC)
        payload = _packed(values_RK, chosen_RK.to(self._index_dtype))
        self._gathered, sending = gather(payload, self._group)
        self.payload_bytes = 0 if sending is None else payload.nbytes
        return sending

    @torch.no_grad()
    def finish(self) -> list[Tensor]:
        """The mean of what was sent, transformed back.

        Replicas add in the order of their ranks, and no replica names a component twice: every rank computes the same
        bits, also where a GPU adds in any order.
        """
        assert self._gathered, "an exchange is started before it is finished"
        total_RC, num_senders_RC = self._momentum.rows.zeros(), self._momentum.rows.zeros()
        for payload in self._gathered:
            values_RK, chosen_RK = self._unpacked(payload)
            total_RC.scatter_add_(1, chosen_RK, values_RK)
            num_senders_RC.scatter_add_(1, chosen_RK, torch.ones_like(values_RK))
        self._gathered = []
        return self._momentum.rows.elements(total_RC.div_(num_senders_RC.clamp_(min=1.0)) @ self._basis_CC)

    def state_dict(self) -> ReplicatorState:
        """The residuals."""
        return self._momentum.state_dict()

    def load_state_dict(self, state: ReplicatorState) -> None:
        """Go on from these residuals, whatever the chunk that left them."""
        self._momentum.load_state_dict(state)

    def _unpacked(self, payload: Tensor) -> tuple[Tensor, Tensor]:
        """Values in fp32 and the numbers of their components."""
        num_values = self._momentum.rows.num_rows * self._top_k
        values, chosen = payload.tensor_split([num_values * self._payload_dtype.itemsize])
        shape = (self._momentum.rows.num_rows, self._top_k)
        return values.view(self._payload_dtype).view(shape).float(), chosen.view(self._index_dtype).view(shape).long()


def _packed(values_RK: Tensor, chosen_RK: Tensor) -> Tensor:
    """Both in one row of bytes; values first, for a view of these must begin at a multiple of their size."""
    return torch.cat([part.reshape(-1).view(torch.uint8) for part in (values_RK, chosen_RK)])
