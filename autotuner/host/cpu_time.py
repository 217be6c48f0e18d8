"""Reads the CPU time of this machine and of single processes from the kernel's counters (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path


def machine_cpu_s() -> tuple[float, float]:
    """Return two numbers of seconds of this machine since boot: the CPU time that was used, and all CPU time.

    Both are sums over all cores. All CPU time also includes the time in which cores were idle. The kernel already
    counts the time of virtual guests as user and nice time.
    """
    words = Path("/proc/stat").read_text().partition("\n")[0].split()
    user, nice, system, idle, iowait, *more = (int(word) / os.sysconf("SC_CLK_TCK") for word in words[1:9])
    busy_s = user + nice + system + sum(more)
    return busy_s, busy_s + idle + iowait


def process_cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process used, including its ended children; 0 if the process is gone.

    A child counts once the process has waited for it.
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, after_name[11:15])) / os.sysconf("SC_CLK_TCK")
