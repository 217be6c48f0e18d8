"""The exchange of replicas that do not sum their gradients, as part of an optimizer step."""

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
    """Makes one model of what replicas learn apart, before or after the update.

    Args:
        by: Exchanges, and remembers what was not sent.
    """

    def __init__(self, by: Replicator | ParameterAverager) -> None:
        self._by: Any = by

    @property
    def payload_bytes(self) -> int:
        """Bytes that this rank contributed in the latest step, without the collective's own factor."""
        return int(self._by.payload_bytes)

    def gradients(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what the update takes for gradients, of those of this replica."""
        return own

    def parameters(self) -> None:
        """The update is done: agree on parameters, if that is due."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return what a rank must keep to go on where it stopped."""
        state: Mapping[str, Any] = self._by.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._by.load_state_dict(state)


class GradientExchange(Exchange):
    """A replicator between the gradients of a replica and the update, which all replicas take with the same bits.

    A tied vocabulary table that lies on two stages has one gradient, and must be sent alike by both: what a replicator
    chooses may depend on where a tensor stands, so that the table stands first. Where one rank holds both copies, it
    is sent once.

    Args:
        by: A replicator of the tensors of these numbers.
        order: The numbers.
        same: Tensors that are the same as others, and need no turn.
    """

    def __init__(self, by: Replicator, order: Sequence[int], *, same: Mapping[int, int]) -> None:
        super().__init__(by)
        self._order = order
        self._same = same

    def gradients(self, own: Sequence[Tensor]) -> list[Tensor]:
        """Exchange gradients, as ``Exchange`` describes."""
        taken = exchange(self._by, [own[index] for index in self._order])
        agreed = dict(zip(self._order, taken, strict=True))
        return [agreed[self._same.get(index, index)] for index in range(len(own))]


class ParameterExchange(Exchange):
    """Replicas that update their own parameters by their own gradients, and average them every few steps."""

    def parameters(self) -> None:
        """Exchange parameters, as ``Exchange`` describes."""
        self._by.after_step()


def exchange_of(
    layout: Layout, masters: Sequence[Tensor], group: dist.ProcessGroup, tied: Sequence[int] = ()
) -> Exchange | None:
    """The exchange that a layout chooses; None where replicas sum their gradients, and nothing is left to exchange.

    Args:
        layout: Of the trial.
        masters: The fp32 parameters that this rank updates.
        group: The ranks that hold the same ones of other replicas.
        tied: Which of them are copies of the table that another stage holds as well.
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
