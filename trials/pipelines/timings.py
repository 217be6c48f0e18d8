"""Timings: how long passes took on a rank in one step, and when its messages left and came."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import torch

from autotuner.schedules.actions import Kind
from trials.pipelines.message import Message


class PassTime(NamedTuple):
    """One pass of one micro-batch through one stage of this rank."""

    kind: Kind
    stage: int
    micro_batch: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """What one rank saw of one step.

    Attributes:
        passes: In the order in which they ran; receives are waited for before a pass and are no part of it.
        transfers_s: From the moment at which the other rank sent a message until it was here. A message that came while
            nobody looked is left out.
        waited_s: Seconds in which the rank waited for messages.
    """

    passes: tuple[PassTime, ...] = ()
    transfers_s: Mapping[Message, float] = field(default_factory=dict)
    waited_s: float = 0.0

    def durations_s(self, kind: Kind) -> tuple[float, ...]:
        """Of every pass of a kind on this rank, in their order."""
        return tuple(one.seconds for one in self.passes if one.kind is kind)

    def median_s(self, kind: Kind) -> float | None:
        """The median duration of a kind of pass; None where none ran."""
        seconds = self.durations_s(kind)
        return median(seconds) if seconds else None

    def shortest_transfer_s(self, peer: int) -> float | None:
        """Of what another pipeline rank sent to this one; None where nothing was seen to come."""
        return min((seconds for message, seconds in self.transfers_s.items() if message.peer == peer), default=None)


class PassClock:
    """Times the passes of a step, on a GPU as points of its stream, which nothing waits for before the step is over."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._passes: list[tuple[Kind, int, int, Any, Any]] = []

    @contextmanager
    def running(self, kind: Kind, stage: int, micro_batch: int) -> Iterator[None]:
        """A pass runs inside."""
        start = self._now()
        yield
        self._passes.append((kind, stage, micro_batch, start, self._now()))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """What runs inside belongs to the latest pass: the loss to the forward before it."""
        yield
        if self._passes:
            self._passes[-1] = (*self._passes[-1][:4], self._now())

    def take(self) -> tuple[PassTime, ...]:
        """The passes since it was asked before."""
        passes, self._passes = self._passes, []
        return tuple(PassTime(kind, stage, index, self._between_s(a, b)) for kind, stage, index, a, b in passes)

    def _now(self) -> Any:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.monotonic()

    def _between_s(self, start: Any, end: Any) -> float:
        if self._device.type == "cuda":
            end.synchronize()
            return float(start.elapsed_time(end)) / 1e3
        return float(end - start)
