"""The exchange between replicas that do not sum their gradients, as part of an optimizer step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import GradientSync, PayloadPrecision
from autotuner.core.layout import Layout
from autotuner.training.lossy_exchange import (
    DemoReplicator,
    ElementReplicator,
    ParameterAverager,
    Replicator,
    exchange,
)
from autotuner.training.momentum import random_offsets, striding_offsets

_DTYPES = {PayloadPrecision.FP32: torch.float32, PayloadPrecision.BF16: torch.bfloat16}


class Exchange:
    """The base class for keeping replicas in agreement if they do not sum their whole gradients in every step.

    A subclass exchanges gradients between replicas before the update of the parameters, or parameters after the update.
    This base class exchanges nothing.

    Args:
        by: The object that exchanges the tensors, and keeps the values that were not sent yet.
    """

    def __init__(self, by: Replicator | ParameterAverager) -> None:
        self._by: Any = by

    @property
    def payload_bytes(self) -> int:
        """The number of bytes that this rank contributed to exchanges in the latest step.

        If a collective sends the bytes several times, they are counted once.
        """
        return int(self._by.payload_bytes)

    def gradients(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the gradients with which this replica updates its parameters; here, its own gradients.

        Args:
            own: The gradients of this replica.
        """
        return own

    def parameters(self) -> None:
        """Exchange parameters between replicas after the update, if an exchange is due in this step.

        This base class does nothing.
        """

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state of the exchange, such as unsent values, that a rank must save to continue training later."""
        state: Mapping[str, Any] = self._by.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned, so that the training continues from there."""
        self._by.load_state_dict(state)


class GradientExchange(Exchange):
    """Exchanges gradients between replicas before the update, so that all replicas apply exactly the same gradients.

    If two pipeline stages hold a copy of a tied vocabulary table, both must send the same elements of its gradient. The
    choice of elements may depend on the position of a tensor in the list, so the table comes first on both stages. If
    one rank holds both copies, the gradient is sent once.

    Args:
        by: The replicator, which sends gradients in compressed form, for the tensors in ``order``.
        order: Numbers of the tensors to exchange, in the order in which they are sent.
        same: For each tensor that is a copy, its number and the number of the tensor whose result it gets.
    """

    def __init__(self, by: Replicator, order: Sequence[int], *, same: Mapping[int, int]) -> None:
        super().__init__(by)
        self._order = order
        self._same = same

    def gradients(self, own: Sequence[Tensor]) -> list[Tensor]:
        """Exchange gradients with the other replicas, and return the gradients for the update on all replicas.

        Args:
            own: The gradients of this replica.
        """
        taken = exchange(self._by, [own[index] for index in self._order])
        agreed = dict(zip(self._order, taken, strict=True))
        return [agreed[self._same.get(index, index)] for index in range(len(own))]


class ParameterExchange(Exchange):
    """Averages the parameters of all replicas every few steps. Between these steps, each replica trains alone."""

    def parameters(self) -> None:
        """Average the parameters with the other replicas, if an average is due in this step (every few steps)."""
        self._by.after_step()


def exchange_of(
    layout: Layout, masters: Sequence[Tensor], group: dist.ProcessGroup, tied: Sequence[int] = ()
) -> Exchange | None:
    """Return the exchange between replicas of a layout; None if replicas sum their whole gradients in every step.

    Args:
        layout: The layout of the trial.
        masters: The fp32 parameters that this rank updates.
        group: The ranks of all replicas that hold the same parameters.
        tied: Indices in ``masters`` of the copies of a vocabulary table that another stage holds as well.
    """
    if layout.gradient_sync == GradientSync.FULL:
        return None
    payload_dtype = _DTYPES[layout.payload_precision]
    if layout.gradient_sync == GradientSync.DILOCO:
        return ParameterExchange(
            ParameterAverager(masters, group, period=layout.sync_period, payload_dtype=payload_dtype)
        )
    order = [*tied[:1], *(index for index in range(len(masters)) if index not in tied)]
    replicator = _replicator(layout, [masters[index] for index in order], group, payload_dtype)
    return GradientExchange(replicator, order, same=dict.fromkeys(tied, order[0]))


def _replicator(
    layout: Layout, tensors: Sequence[Tensor], group: dist.ProcessGroup, payload_dtype: torch.dtype
) -> Replicator:
    decay = layout.sync_decay_permille / 1000
    if layout.gradient_sync == GradientSync.DEMO:
        return DemoReplicator(
            tensors, group, chunk=layout.sync_chunk, top_k=layout.sync_top_k, decay=decay, payload_dtype=payload_dtype
        )
    return ElementReplicator(
        tensors,
        group,
        sparsity=layout.sync_sparsity,
        offsets=random_offsets if layout.gradient_sync == GradientSync.RANDOM else striding_offsets,
        decay=decay,
        payload_dtype=payload_dtype,
    )
