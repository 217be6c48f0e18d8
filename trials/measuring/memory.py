"""Bytes that a rank's tensors hold and its allocator takes: a limit before the trial, the peaks after it."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from bisect import bisect_left
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile

from trials.quiet import silenced_stderr

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
    return _status_bytes("VmData")


def _status_bytes(field: str) -> int:
    """A size that the kernel tells of this process (proc(5))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024  # the kernel's kB are KiB
    raise AssertionError(f"a Linux process has {field}")


class MemoryWatch:
    """Watches memory from the first parameter on: what tensors held at most, and what was taken for them.

    On CUDA the allocator keeps both peaks anyway. On a CPU the profiler records every allocation of torch's allocator;
    that costs microseconds per operation, and seconds to evaluate, so it ends with the first step, which is as high as
    it gets, and steps that are timed stay outside. The growth of the process is watched from then on: the records of
    the profiler are part of the process too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._profile: profile | None = None
        self._peak_bytes = 0
        self._resident_bytes = 0

    def start(self) -> None:
        """Nothing that was allocated before counts."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # what is cached counts as reserved
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        self._resident_bytes = _status_bytes("VmRSS")
        self._profile = profile(profile_memory=True)
        with silenced_stderr():
            self._profile.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Stop paying for it."""
        if self._profile is None:
            return
        with silenced_stderr():
            self._profile.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._peak_bytes = _highest_bytes(self._profile)
        self._profile = None  # it holds every event
        _forget_highest_resident()

    @property
    def peak_bytes(self) -> int:
        """Highest bytes allocated at one time: by torch's CPU allocator, or so far by CUDA's."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else self._peak_bytes

    @property
    def reserved_bytes(self) -> int:
        """Highest bytes taken for tensors, in use or not: by CUDA's caching allocator, or by which the process grew."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device)
        return max(0, _status_bytes("VmHWM") - self._resident_bytes)


def _forget_highest_resident() -> None:
    """Give back what malloc keeps of the freed, and let the kernel count the process's highest size anew.

    Where /proc/self/clear_refs is not to be written (proc(5)), what came before counts too.
    """
    ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


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
