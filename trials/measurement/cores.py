"""CPU cores: which one a rank is bound to, and how busy everybody else kept the machine."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trials.runtime.rank import RankInfo


def own_core(rank_info: RankInfo) -> int:
    """The core of this rank: the allowed ones in turn, by local rank."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[rank_info.local_rank % len(allowed)]


def num_cores_used(rank_info: RankInfo) -> int:
    """Different cores that the ranks of this host are bound to; ask before ``pin``."""
    return min(rank_info.local_world_size, len(os.sched_getaffinity(0)))


def pin(core: int) -> None:
    """Bind this process and the threads it starts to one core, so that the cores a trial has are a fact."""
    os.sched_setaffinity(0, {core})


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTime:
    """CPU seconds since boot or since a process's start; two of them make an interval."""

    machine_busy_s: float
    machine_total_s: float
    own_s: float

    @classmethod
    def now(cls, helpers: Iterable[int] = ()) -> CpuTime:
        """Read the kernel's counters; what processes that work for this one have used counts as its own.

        Source: proc(5), the fields of the line ``cpu`` of /proc/stat: user, nice, system, idle, iowait, irq,
        softirq, steal; guest time is already inside user and nice.
        """
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        per_second = os.sysconf("SC_CLK_TCK")
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(
            machine_busy_s=(sum(ticks) - ticks[3] - ticks[4]) / per_second,
            machine_total_s=sum(ticks) / per_second,
            own_s=usage.ru_utime + usage.ru_stime + sum(_ticks_of(pid) for pid in helpers) / per_second,
        )

    def since(self, start: CpuTime) -> CpuTime:
        """What was used between ``start`` and now."""
        return CpuTime(
            machine_busy_s=self.machine_busy_s - start.machine_busy_s,
            machine_total_s=self.machine_total_s - start.machine_total_s,
            own_s=self.own_s - start.own_s,
        )

    def foreign_share(self, ranks_s: float) -> float:
        """Fraction of the machine that processes other than the ranks used, 0..1; ``ranks_s`` sums over this host's."""
        if self.machine_total_s <= 0.0:
            return 0.0  # shorter than a tick of the kernel's clock
        return min(max((self.machine_busy_s - ranks_s) / self.machine_total_s, 0.0), 1.0)


def _ticks_of(pid: int) -> int:
    """CPU time of another process (proc(5): the 14th and 15th field of its ``stat``, behind a name in parentheses)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
