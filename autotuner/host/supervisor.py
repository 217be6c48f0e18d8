"""Supervises a command: starts it under its limits, and ends every process that it started before it exits itself.

This is a separate program that imports only the standard library and is started by its file name. A process whose
parent died becomes a child of the supervisor (``PR_SET_CHILD_SUBREAPER``, prctl(2)). The supervisor therefore finds and
ends it even if it left its session and cleared its environment. The kernel sends the supervisor a signal to end when
the process that started it dies (``PR_SET_PDEATHSIG``).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

CANNOT_START = 127
"""Exit code when the program could not be started, as in a shell; the log says why."""

_PDEATHSIG = 1
_CHILD_SUBREAPER = 36
_GRACE_S = 3.0
"""Seconds that the remaining processes get to exit after SIGTERM; a launcher may kill them earlier."""

_POLL_S = 0.02


def main(arguments: Sequence[str]) -> int:
    """Run a command to its end, then end all processes that the command left running.

    Args:
        arguments: Process id of the caller, limit in bytes on the data of each process (0: no limit), and the command.

    Returns:
        The exit code of the command. If a signal ended the command, the same signal ends this process.
    """
    parent, limit_bytes, command = int(arguments[0]), int(arguments[1]), list(arguments[2:])
    signal.signal(signal.SIGTERM, _end)
    _prctl(_CHILD_SUBREAPER, 1)
    _prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be heard of
        return CANNOT_START
    child = os.fork()
    if child == 0:
        _become(command, limit_bytes)
    status = _wait_for(child)
    end_descendants()
    return _leave_as(status)


def descendants(pid: int) -> list[int]:
    """Return the ids of all live processes that a process started, directly or indirectly (proc(5))."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        state, parent = _state_and_parent(name)
        if state not in ("Z", "X"):
            parents[int(name)] = parent
    found, frontier = [], [pid]
    while frontier:
        of = frontier.pop()
        below = [child for child, parent in parents.items() if parent == of]
        found += below
        frontier += below
    return found


def kernel_oom_kills() -> int:
    """Return how many processes the kernel has killed since boot because memory was full.

    It is 0 if the kernel does not count such processes.
    """
    try:
        with open("/proc/vmstat", encoding="utf-8") as counters:
            lines = [line.split() for line in counters]
    except OSError:
        return 0
    return next((int(value) for name, value in lines if name == "oom_kill"), 0)


def end_descendants() -> None:
    """End all processes that this process started, until none is left.

    They first get SIGTERM, and a few seconds later SIGKILL.
    """
    deadline = time.monotonic() + _GRACE_S
    asked = False
    while left := descendants(os.getpid()):
        is_late = time.monotonic() >= deadline
        for pid in left if is_late or not asked else ():
            send(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        asked = True
        _reap()
        time.sleep(_POLL_S)
    _reap()


def _become(command: Sequence[str], limit_bytes: int) -> None:
    """Replace this process with the command (exec), under its memory limit."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        if limit_bytes:
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            bytes_ = limit_bytes if most == resource.RLIM_INFINITY else min(limit_bytes, most)
            resource.setrlimit(resource.RLIMIT_DATA, (bytes_, bytes_))
        os.execvp(command[0], list(command))
    except (OSError, ValueError) as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    finally:
        os._exit(CANNOT_START)


def _wait_for(child: int) -> int:
    """Wait for one child and return its exit status; meanwhile, reap every other child that ends."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _leave_as(code: int) -> int:
    """Return the exit code; if it is negative, die of that signal instead, without writing a second core dump."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _end(number: int, frame: FrameType | None) -> None:
    """Handle a signal that asks this process to end: end all descendants, then exit."""
    del frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_descendants()
    os._exit(128 + number)


def send(pid: int, number: int) -> None:
    """Send signal ``number`` to a process. If the process is gone or belongs to another user, nothing happens."""
    try:
        os.kill(pid, number)
    except OSError:
        return  # gone, or not ours to end


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _state_and_parent(name: str) -> tuple[str, int]:
    try:
        with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
            after_name = stat.read().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return after_name[0], int(after_name[1])


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
