"""Averaging of parameters between steps (DiLoCo), and what every lossy exchange says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
import torch.distributed as dist
from torch import Tensor

from autotuner.core.errors import InvalidInput
from autotuner.training.replication.replicator import Rows


class AveragerState(TypedDict):
    """What a rank must keep to go on where it stopped."""

    anchors: list[Tensor]
    """The parameters behind the latest average."""
    num_steps: int
    """Optimizer steps done."""


class ParameterAverager:
    """Every ``period`` steps parameters become ``anchor + mean over replicas of (parameters - anchor)``.

    Between these steps replicas differ; behind them they have the same bits, and the anchor is what they agreed on.

    Attributes:
        payload_bytes: What this rank contributed behind the latest step, 0 where no average was due.

    Source: arXiv 2311.08105, whose outer step is here plain averaging (an outer learning rate of 1, no momentum).
    """

    payload_bytes = 0

    def __init__(
        self,
        parameters: Sequence[Tensor],
        group: dist.ProcessGroup,
        *,
        period: int = 16,
        payload_dtype: torch.dtype = torch.float32,
    ) -> None:
        """Of the very memory of these parameters, which all replicas begin with alike.

        Raises:
            InvalidInput: ``period < 1``.
        """
        if period < 1:
            raise InvalidInput("period", period, "must be at least 1: steps from one average to the next", nearest=1)
        self._parameters = parameters
        self._group = group
        self._period = period
        self._payload_dtype = payload_dtype
        self._num_steps = 0
        self._rows = Rows(parameters, 1)
        self._anchor = self._rows.zeros()
        self._rows.load(self._anchor, parameters)

    @torch.no_grad()
    def after_step(self) -> bool:
        """Count an optimizer step, and average where that is due; whether it was."""
        self._num_steps += 1
        is_due = self._num_steps % self._period == 0
        self.payload_bytes = 0
        if is_due:
            self._average()
        return is_due

    def _average(self) -> None:
        anchors = self._rows.elements(self._anchor)
        deltas = [held.float() - anchor for held, anchor in zip(self._parameters, anchors, strict=True)]
        payload = torch.cat([delta.reshape(-1) for delta in deltas]).to(self._payload_dtype)
        if self._group.size() > 1:
            self.payload_bytes = payload.nbytes
            dist.all_reduce(payload, group=self._group)
        self._anchor.view(-1).add_(payload.float() / self._group.size())
        for held, anchor in zip(self._parameters, anchors, strict=True):
            held.copy_(anchor)

    def state_dict(self) -> AveragerState:
        """The anchors and the number of the step; the parameters are their owner's to save."""
        anchors = [anchor.clone() for anchor in self._rows.elements(self._anchor)]
        return AveragerState(anchors=anchors, num_steps=self._num_steps)

    def load_state_dict(self, state: AveragerState) -> None:
        """Go on from these anchors.

        Raises:
            InvalidInput: They have other shapes.
        """
        self._rows.load(self._anchor, state["anchors"])
        self._num_steps = state["num_steps"]
