"""Forks a rank: a process with all that its parent imported, and with a session, logs and environment of its own."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trials.process.task import Task, TaskContext
from trials.runtime.parent_death import die_with_parent
from trials.runtime.rank import RankInfo

_EXIT_BROKEN = 70
"""The task raised, which it must not (EX_SOFTWARE of sysexits.h)."""


def fork_rank(task: Task, folder: Path, rank_info: RankInfo, environment: Mapping[str, str]) -> int:
    """The pid of a new process that does the task and ends with its exit code."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = _EXIT_BROKEN
    try:
        _become_rank(parent, folder, rank_info, environment)
        code = task(TaskContext(folder=folder, rank_info=rank_info))
    except BaseException:  # whatever it is, this process must not go on as its parent would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # torch's own clean-up takes a second and has nothing left to do


def _become_rank(parent: int, folder: Path, rank_info: RankInfo, environment: Mapping[str, str]) -> None:
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_BROKEN)  # it died before the kernel was asked to tell
    os.setsid()
    _redirect(folder / "ranks" / str(rank_info.rank))
    faulthandler.enable()  # a crash in native code leaves a stack
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # a launcher that gives up asks where this rank hangs
    os.environ.update(environment)
    os.environ.update(rank_info.environment())


def _redirect(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = (
        (0, os.open(os.devnull, os.O_RDONLY)),
        (1, os.open(directory / "stdout.log", flags, 0o644)),
        (2, os.open(directory / "stderr.log", flags, 0o644)),
    )
    for standard, descriptor in files:
        os.dup2(descriptor, standard)
        os.close(descriptor)


@contextmanager
def shown_in_proc(name: str, value: str) -> Iterator[None]:
    """Have ``/proc/PID/environ`` show this value, of this process and of those that it forks meanwhile.

    The kernel shows the memory that a program was started with, and a fork starts no program. So the variable has to be
    there from the start, with at least as many characters; spaces fill up what the value leaves.
    """
    before = _overwrite(name, value)
    try:
        yield
    finally:
        _overwrite(name, before)


def _overwrite(name: str, value: str) -> str:
    """Write over the variable's characters where they lie; returns what they were."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    address = library.getenv(name.encode())
    before = ctypes.string_at(address)
    ctypes.memmove(address, value.encode().ljust(len(before))[: len(before)], len(before))
    return before.decode()
