"""The processes of one trial: found by a mark in their environment, ended for certain."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

__all__ = ["MARK", "ask_for_stacks", "end_all", "kernel_oom_kills", "marked"]

MARK = "AUTOTUNER_TRIAL_MARK"
"""Environment variable that every process of a trial inherits, wherever in the process tree it ends up; a process that
was forked shows it filled up with spaces."""

_POLL_S = 0.02


def marked(mark: str) -> Iterator[psutil.Process]:
    """Live processes that carry the mark; ranks have sessions of their own, so process groups do not find them."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").strip() == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def end_all(mark: str, *, grace_s: float) -> int:
    """SIGTERM to all marked processes, SIGKILL to those left after ``grace_s``; returns when none is left.

    Returns:
        How many had to be killed.
    """
    for process in marked(mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not any(marked(mark)):
            return 0
        time.sleep(_POLL_S)
    num_killed = 0
    while left := list(marked(mark)):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                num_killed += 1
        time.sleep(_POLL_S)
    return num_killed


def ask_for_stacks(mark: str) -> None:
    """Have every rank write its Python stack to its log: that shows where a hang is."""
    for process in marked(mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _is_rank(process.cmdline()):
                process.send_signal(signal.SIGUSR1)


def _is_rank(command: list[str]) -> bool:
    """A rank is ``python -m trials``, or the zygote's program forked; agents and compilers know no SIGUSR1."""
    return "trials.agent" not in command and ("trials" in command or "trials.zygote" in command)


def kernel_oom_kills() -> int:
    """How many processes the kernel has killed for memory since boot; 0 where it does not count them."""
    counters = Path("/proc/vmstat")
    if not counters.exists():
        return 0
    lines = (line.split() for line in counters.read_text().splitlines())
    return next((int(value) for name, value in lines if name == "oom_kill"), 0)
