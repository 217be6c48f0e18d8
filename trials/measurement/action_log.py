"""When each pass of each micro-batch began and ended on this rank, in a step that is recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from autotuner.core.timeline import Block, BlockKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One rank's step, in seconds from the moment at which all ranks began.

    Attributes:
        began_ns: That moment on the clock of this rank's host.
        passes: What it computed, in order of time.
        complete_s: Its gradients were complete.
        updated_s: Its parameters were updated.
        averaging_s: From when to when replicas averaged parameters, as a part of the update; empty: they did not.
        done_s: It knew that every rank was done.
    """

    began_ns: int
    passes: tuple[Block, ...]
    complete_s: float
    updated_s: float
    done_s: float
    averaging_s: tuple[float, ...] = ()


class ActionLog:
    """Notes passes and moments while it is told to; else it costs a comparison for each.

    On a GPU moments are points of the stream, so that nothing waits for them before the step is over.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_on = False
        self._began_ns = 0
        self._begin: Any = None
        self._passes: list[tuple[BlockKind, int, int, Any, Any]] = []

    def begin(self) -> None:
        """All ranks begin a step that is to be recorded."""
        self._is_on, self._passes = True, []
        self._began_ns, self._begin = time.perf_counter_ns(), self._now()

    @contextmanager
    def running(self, kind: BlockKind, stage: int, micro_batch: int) -> Iterator[None]:
        """A pass runs inside."""
        if not self._is_on:
            yield
            return
        start = self._now()
        yield
        self._passes.append((kind, stage, micro_batch, start, self._now()))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """What runs inside belongs to the latest pass: the loss to the forward before it."""
        yield
        if self._is_on and self._passes:
            self._passes[-1] = (*self._passes[-1][:4], self._now())

    def end(
        self, complete_s: float, updated_s: float, done_s: float, *, averaging_s: tuple[float, ...] = ()
    ) -> RecordedStep:
        """The step is over; the moments are seconds from its begin."""
        self._is_on = False
        passes = tuple(
            Block(self._since_begin_s(start), self._since_begin_s(end), kind, stage, micro_batch)
            for kind, stage, micro_batch, start, end in self._passes
        )
        return RecordedStep(
            began_ns=self._began_ns,
            passes=passes,
            complete_s=complete_s,
            updated_s=updated_s,
            done_s=done_s,
            averaging_s=averaging_s,
        )

    def _now(self) -> Any:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.perf_counter()

    def _since_begin_s(self, moment: Any) -> float:
        if self._device.type == "cuda":
            moment.synchronize()
            return float(self._begin.elapsed_time(moment)) / 1e3
        return float(moment - self._begin)
