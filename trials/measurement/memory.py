"""The memory of a rank's tensors and of its allocator: a limit before the trial, and the peaks after it."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile

from autotuner.trials.processes import silence_stderr


def limit(device: torch.device, budget_bytes: int) -> None:
    """Limit the memory of this process to ``budget_bytes`` more than now. Beyond that, it fails as on a full device.

    On a CPU, the kernel refuses data pages beyond the budget. Therefore memory that malloc has cached counts, as memory
    of the caching allocator does on CUDA. The Python objects of a model count, too.
    """
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, budget_bytes / total), device)
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + budget_bytes, hard))


def lift_limit() -> bool:
    """Remove the memory limit that ``limit`` set on a CPU, so that a rank without memory can still write a report.

    Returns:
        True if there was a limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    return soft != hard


def _data_bytes() -> int:
    """Return the bytes of private writable pages of this process, which RLIMIT_DATA limits (getrlimit(2))."""
    return _status_bytes("VmData")


def _status_bytes(field: str) -> int:
    """Return a size that the kernel reports for this process (proc(5))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024  # the kernel's kB are KiB
    raise AssertionError(f"a Linux process has {field}")


class MemoryWatch:
    """Records the peak memory from the first parameter on: bytes in tensors, and bytes reserved for tensors.

    On CUDA, the allocator itself knows both peaks. On a CPU, the profiler records every allocation of torch's
    allocator. This costs microseconds per operation, and seconds to evaluate. Therefore the profiler runs only during
    the first step, which already reaches the peak, so it does not disturb the timed steps. The growth of the process is
    measured only after the first step, because the records of the profiler also use memory of the process.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._recording = contextlib.ExitStack()
        self._profile: profile | None = None
        self._peak_bytes = 0
        self._resident_bytes = 0

    def start(self) -> None:
        """Start to record the peak memory. Memory that was allocated before this call does not count."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # what is cached counts as reserved
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        self._resident_bytes = _status_bytes("VmRSS")
        self._recording.enter_context(_hearing_all_threads())
        self._profile = profile(profile_memory=True)
        with silence_stderr():
            self._recording.enter_context(self._profile)

    def stop(self) -> None:
        """Stop the profiler that records allocations on a CPU, and keep the peak memory that it found.

        On CUDA, nothing happens, because the allocator itself knows the peak.
        """
        if self._profile is None:
            return
        with silence_stderr():
            self._recording.close()
        self._peak_bytes = _highest_bytes(self._profile)
        self._profile = None  # it holds every event
        _forget_highest_resident()

    @property
    def peak_bytes(self) -> int:
        """Return the peak number of bytes in tensors: on a CPU up to the call of ``stop``, on CUDA up to now."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else self._peak_bytes

    @property
    def reserved_bytes(self) -> int:
        """Return the peak number of bytes that were reserved for tensors, in use or not.

        On CUDA, it is the memory of the caching allocator. On a CPU, it is the growth of the process.
        """
        if self._device.type == "cuda":
            return torch.cuda.max_memory_reserved(self._device)
        return max(0, _status_bytes("VmHWM") - self._resident_bytes)


def _forget_highest_resident() -> None:
    """Return freed memory of malloc to the system, and reset the kernel's peak of the resident memory.

    If /proc/self/clear_refs cannot be written (proc(5)), the peak includes earlier memory.
    """
    ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@contextlib.contextmanager
def _hearing_all_threads() -> Iterator[None]:
    """Make torch's count of the CPU's memory include every block, on whichever thread it is allocated or freed.

    By default, only profiled threads are counted. The threads of gloo are not among them, but free some of the sent and
    received tensors. The switch is a command-line flag of C10 (c10/core/CPUAllocator.cpp, torch 2.13) without a Python
    name. A torch built with gflags does not export it; its peaks with reduced shards were up to 5 % too high.
    """
    try:
        flag = ctypes.c_bool.in_dll(ctypes.CDLL("libc10.so"), "FLAGS_caffe2_report_cpu_memory_usage")
    except (OSError, ValueError):
        flag = ctypes.c_bool()
    flag.value = True
    try:
        yield
    finally:
        flag.value = False


def _highest_bytes(recorded: profile) -> int:
    """Return the peak of the bytes that were allocated while the profiler recorded."""
    allocations = _allocations(recorded)
    before = allocations[0].total_allocated - allocations[0].alloc_size if allocations else 0
    return max((allocation.total_allocated - before for allocation in allocations), default=0)


def _allocations(recorded: profile) -> list[Any]:
    """Yield every allocation and every free, in order of time; they are children of the operations that made them."""
    results: Any = recorded.kineto_results
    found, waiting = [], list(results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            found.append(event)
    found.sort(key=lambda event: event.start_time_ns)
    return [event.extra_fields for event in found]
