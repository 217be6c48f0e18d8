"""What replicas that do not sum their gradients exchange in their place, as part of an optimizer step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.choices import GradientSync, PayloadPrecision
from autotuner.core.layout import Layout
from autotuner.training.lossy_exchange import (
    AveragerState,
    DemoReplicator,
    ElementReplicator,
    ParameterAverager,
    Replicator,
    exchange,
)
from autotuner.training.momentum import ExchangeState, random_offsets, striding_offsets

_DTYPES = {PayloadPrecision.FP32: torch.float32, PayloadPrecision.BF16: torch.bfloat16}


class Exchange(Protocol):
    """Makes one model of what replicas learn apart, before or behind the update.

    Attributes:
        payload_bytes: What this rank contributed in the latest step, before the collective's own factor.
    """

    @property
    def payload_bytes(self) -> int:
        """See above."""

    def gradients(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """What the update takes for gradients, of those of this replica."""

    def parameters(self) -> None:
        """The update is done: agree on parameters, if that is due."""

    def state_dict(self) -> Mapping[str, Any]:
        """What a rank must keep to go on where it stopped."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


class GradientExchange:
    """A replicator between the gradients of a replica and the update.

    A tied vocabulary table that lies on two stages has one gradient, and must be sent alike by both: what a replicator
    chooses may depend on where a tensor stands, so that the table stands first. Where one rank holds both copies, it
    is sent once.
    """

    def __init__(self, replicator: Replicator, order: Sequence[int], *, same: Mapping[int, int]) -> None:
        """Take a replicator of the tensors of these numbers; those that are the ``same`` as others need no turn."""
        self._replicator = replicator
        self._order = order
        self._same = same

    @property
    def payload_bytes(self) -> int:
        """Of the latest step."""
        return self._replicator.payload_bytes

    def gradients(self, own: Sequence[Tensor]) -> list[Tensor]:
        """What all replicas take, with the same bits."""
        taken = exchange(self._replicator, [own[index] for index in self._order])
        agreed = dict(zip(self._order, taken, strict=True))
        return [agreed[self._same.get(index, index)] for index in range(len(own))]

    def parameters(self) -> None:
        """Nothing to do: equal updates of equal parameters leave them equal."""

    def state_dict(self) -> Mapping[str, Any]:
        """Of the replicator."""
        return self._replicator.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """To the replicator."""
        self._replicator.load_state_dict(cast("ExchangeState", state))


class ParameterExchange:
    """Replicas that update their own parameters by their own gradients, and average them every few steps."""

    def __init__(self, averager: ParameterAverager) -> None:
        self._averager = averager

    @property
    def payload_bytes(self) -> int:
        """Of the latest step; 0 where no average was due."""
        return self._averager.payload_bytes

    def gradients(self, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Those of this replica."""
        return own

    def parameters(self) -> None:
        """Average them where that is due."""
        self._averager.after_step()

    def state_dict(self) -> Mapping[str, Any]:
        """Of the averager."""
        return self._averager.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """To the averager."""
        self._averager.load_state_dict(cast("AveragerState", state))


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
