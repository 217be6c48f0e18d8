"""Marks moments of a step without making the device wait."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function

MARK = "trial: "
"""What a moment's name begins with in a profile."""


class Stopwatch:
    """Named moments: points in the CUDA stream, or of the clock where work is done when a call returns.

    A profiler that runs meanwhile sees them too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: dict[str, Any] = {}

    def mark(self, name: str) -> None:
        """This is the moment ``name``; the latest call counts."""
        with record_function(MARK + name):
            self._marks[name] = self._now()

    def _now(self) -> Any:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(self._device))
            return event
        return time.perf_counter()

    def between_s(self, start: str, end: str) -> float:
        """Seconds from one moment to another; on CUDA it waits until the second has passed."""
        if self._device.type == "cuda":
            self._marks[end].synchronize()
            return float(self._marks[start].elapsed_time(self._marks[end])) / 1e3
        return float(self._marks[end] - self._marks[start])

    def mark_backward_of(self, layer: nn.Module, name: str) -> None:
        """Mark the moment when the gradient of the layer's input is known, in each backward pass."""

        def on_input(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            del module
            if args[0].requires_grad:
                args[0].register_hook(on_gradient)  # type: ignore[no-untyped-call]

        def on_gradient(gradient: Tensor) -> None:
            del gradient
            self.mark(name)

        layer.register_forward_pre_hook(on_input)
