"""How busy others kept the machine while a trainer's steps were measured."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

_APART_S = 0.2
"""Looks that follow each other faster tell no more: the kernel's clock ticks every 10 ms, and a look takes some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds: of the machine since boot, and of some processes since their start."""

    busy_s: float
    total_s: float
    own_s: float


class CoreWatch:
    """Looks at the machine's CPU time and at that of a trial's processes, from the first measured step to the last.

    Args:
        processes: Those of the trial, asked at each look; what their own children used counts once these are gone.
        look: Reads the counters.
        apart_s: Looks that follow each other faster are one.
    """

    def __init__(
        self,
        processes: Callable[[], Iterable[psutil.Process]],
        look: Callable[[Iterable[psutil.Process]], CpuTime] | None = None,
        *,
        apart_s: float = _APART_S,
    ) -> None:
        self._apart_s = apart_s
        self._processes = processes
        self._read = look or _read
        self._first: CpuTime | None = None
        self._last: CpuTime | None = None
        self._looked_at_s = 0.0

    def look(self) -> None:
        """Steps are being measured."""
        now_s = time.monotonic()
        if self._first is not None and now_s - self._looked_at_s < self._apart_s:
            return
        self._looked_at_s = now_s
        self._last = self._read(self._processes())
        self._first = self._first or self._last

    @property
    def foreign_share(self) -> float:
        """Fraction of the machine that others used between the first look and the last, 0..1."""
        if self._first is None or self._last is None or self._last.total_s <= self._first.total_s:
            return 0.0
        busy_s, own_s = self._last.busy_s - self._first.busy_s, self._last.own_s - self._first.own_s
        return min(max((busy_s - max(0.0, own_s)) / (self._last.total_s - self._first.total_s), 0.0), 1.0)


def _read(processes: Iterable[psutil.Process]) -> CpuTime:
    """The kernel's counters (proc(5)); guest time is already inside user and nice."""
    machine = psutil.cpu_times()
    total_s = sum(machine[:8])
    own_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used = process.cpu_times()
            own_s += used.user + used.system + used.children_user + used.children_system
    return CpuTime(busy_s=total_s - machine.idle - machine.iowait, total_s=total_s, own_s=own_s)
