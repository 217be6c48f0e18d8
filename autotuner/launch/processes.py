"""The processes of one attempt at a trial: found by its id in their environment, ended for certain."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Iterator

import psutil

ATTEMPT_ID = "AUTOTUNER_ATTEMPT_ID"
"""Environment variable that every process of an attempt inherits, wherever in the process tree it ends up; a process
that was forked shows it filled up with spaces."""

_POLL_S = 0.02

_KILLED_S = 1.0
"""A process is gone milliseconds after SIGKILL, unless the kernel waits for a device on its behalf: that may last."""


def processes_of(attempt_id: str) -> Iterator[psutil.Process]:
    """Live processes of an attempt; ranks have sessions of their own, so process groups do not find them."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(ATTEMPT_ID, "").strip() == attempt_id and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def end_all(
    attempt_id: str, *, grace_s: float, living: Callable[[str], Iterable[psutil.Process]] = processes_of
) -> tuple[int, ...]:
    """SIGTERM to all processes of an attempt, SIGKILL to those left after ``grace_s``; returns when none is left.

    Args:
        attempt_id: What their environment has as ``ATTEMPT_ID``.
        grace_s: What they may take to leave by themselves.
        living: Says which of the processes are there still.

    Returns:
        Pids that outlasted SIGKILL by a second: they sit in a call of a driver that nothing interrupts (state D).
    """
    for process in living(attempt_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not any(living(attempt_id)):
            return ()
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _KILLED_S
    while (left := list(living(attempt_id))) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_POLL_S)
    return tuple(process.pid for process in left)


def ask_for_stacks(attempt_id: str) -> None:
    """Have every rank write its Python stack to its log: that shows where a hang is."""
    for process in processes_of(attempt_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _is_rank(process.cmdline()):
                process.send_signal(signal.SIGUSR1)


def _is_rank(command: list[str]) -> bool:
    """A rank is ``python -m trials``, or the zygote's program forked; agents and compilers know no SIGUSR1."""
    return "trials.process.torchrun_agent" not in command and (
        "trials" in command or "trials.process.zygote" in command
    )
