"""Bytes that a rank's tensors hold: a limit before the trial, the peak after it."""

from __future__ import annotations

import os
import resource
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile

__all__ = ["Ledger", "MemoryWatch", "lift_limit", "limit"]


def limit(device: torch.device, budget_bytes: int) -> None:
    """Let this process allocate that much more, and then fail as it would on a full device.

    On a CPU the kernel refuses data pages beyond the budget, so the caching of malloc counts as the caching
    allocator's does on CUDA; the Python objects that come with a model count too.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), device)
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + budget_bytes, hard))


def lift_limit() -> None:
    """Undo ``limit`` on a CPU, so that a rank that ran out of memory can still say so."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _data_bytes() -> int:
    """Private writable pages of this process: what RLIMIT_DATA limits (getrlimit(2))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024  # the kernel's kB are KiB
    raise AssertionError("a Linux process has VmData")


class MemoryWatch:
    """Watches allocations from the first parameter to the end of the first step, which is as high as it gets.

    On CUDA the allocator keeps the peak anyway. On a CPU the profiler records every allocation of torch's allocator;
    that costs microseconds per operation, and seconds to evaluate, so steps that are timed stay outside.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._profile: profile | None = None
        self._peak_bytes = 0

    def start(self) -> None:
        """Nothing that was allocated before counts."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        self._profile = profile(profile_memory=True)
        with _silenced_stderr():
            self._profile.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop paying for it."""
        if self._profile is None:
            return
        with _silenced_stderr():
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._peak_bytes = _highest_bytes(self._profile)
        self._profile = None  # it holds every event

    @property
    def peak_bytes(self) -> int:
        """Highest bytes allocated at one time: by torch's CPU allocator, or so far by CUDA's."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else self._peak_bytes


class Ledger:
    """Which addresses hold how much, and the most they held together.

    Threads of gloo free some of what they sent, and their calls are not recorded. Such a block is struck off when
    its place is given away again, which for an allocator is soon.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._held_bytes = 0
        self.highest_bytes = 0

    def allocate(self, start: int, size: int) -> None:
        """A block is taken; any other that lies there must have been freed."""
        index = bisect_left(self._starts, start)
        if index and self._starts[index - 1] + self._sizes[self._starts[index - 1]] > start:
            index -= 1
        while index < len(self._starts) and self._starts[index] < start + size:
            self.free(self._starts[index])
        self._starts.insert(index, start)
        self._sizes[start] = size
        self._held_bytes += size
        self.highest_bytes = max(self.highest_bytes, self._held_bytes)

    def free(self, start: int) -> None:
        """A block is given back; one from before the ledger was opened does not count."""
        if start in self._sizes:
            del self._starts[bisect_left(self._starts, start)]
            self._held_bytes -= self._sizes.pop(start)


def _highest_bytes(recorded: profile) -> int:
    ledger = Ledger()
    for event in _allocations(recorded):
        if event.alloc_size > 0:
            ledger.allocate(event.ptr, event.alloc_size)
        else:
            ledger.free(event.ptr)
    return ledger.highest_bytes


def _allocations(recorded: profile) -> list[Any]:
    """Every allocation and every free, in order of time; they hang below the operations that made them."""
    results: Any = recorded.kineto_results
    found, waiting = [], list(results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            found.append(event)
    found.sort(key=lambda event: event.start_time_ns)
    return [event.extra_fields for event in found]


@contextmanager
def _silenced_stderr() -> Iterator[None]:
    """The profiler's library announces its start and end there, in a log whose last lines a person will read."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
