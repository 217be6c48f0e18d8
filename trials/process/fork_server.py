"""A process per host that imports torch once and forks the ranks of every trial: they start within milliseconds.

``python -m autotuner.trials.process.fork_server ID_VARIABLE`` reads one JSON object per line from its standard input:

    {"id": "a7", "task": "autotuner.trials.process.task:run_trial", "folder": "/...", "num_ranks": 2,
     "environment": {"A": "b"}}

and writes one object per event to its standard output, with the same ``id``: ``started`` when all ranks are forked;
``ended`` when a rank is gone, with ``rank`` and ``exit_code`` (below zero: the signal that ended it); ``refused`` with
a ``reason`` if the task does not exist. A rank's output goes to ``FOLDER/ranks/RANK/stdout.log`` and ``stderr.log``.
ID_VARIABLE is the variable by which a launcher finds and ends a trial's processes. This process must start with a value
of it that is at least as long as all later values.

A fork copies neither threads nor CUDA contexts, so this process has a single thread and never uses a device. It ends
when its standard input is closed: it dies with its launcher, not with the thread that started it, and so do its ranks.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import select
import selectors
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from autotuner.trials.process.task import Task, TaskContext, find_task
from autotuner.trials.processes import die_with_parent
from autotuner.trials.rank import RankInfo

# Forks a rank: a process with all that its parent imported, and with a session, logs and environment of its own.

_EXIT_BROKEN = 70
"""Exit code of a task that raised an exception, which it must not do (EX_SOFTWARE of sysexits.h)."""


def fork_rank(task: Task, folder: Path, rank_info: RankInfo, environment: Mapping[str, str]) -> int:
    """Fork a process that runs a task, such as a trial, as one rank. Return its pid.

    The process exits with the exit code of the task.

    Args:
        task: The function to run.
        folder: The folder of the task.
        rank_info: The place of the new rank in the job.
        environment: Environment variables for the new process.
    """
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = _EXIT_BROKEN
    try:
        _become_rank(parent, folder, rank_info, environment)
        code = task(TaskContext(folder=folder, rank_info=rank_info))
    except BaseException:  # after any error, this process must not continue as its parent would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # torch's own clean-up takes a second and has nothing left to do


def _become_rank(parent: int, folder: Path, rank_info: RankInfo, environment: Mapping[str, str]) -> None:
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_BROKEN)  # it died before the request to the kernel
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
    """While the block runs, ``/proc/PID/environ`` shows a value for this process and the processes that it forks.

    The launcher finds the processes of a trial by this value. The kernel shows the memory with the environment of the
    program's start, and a fork does not start a program. Therefore this function overwrites that memory. The variable
    must exist from the start with at least as many characters as the new value. Spaces fill the rest.

    Args:
        name: Name of the environment variable.
        value: The value to show.
    """
    before = _overwrite(name, value)
    try:
        yield
    finally:
        _overwrite(name, before)


def _overwrite(name: str, value: str) -> str:
    """Overwrite the characters of an environment variable in place; return the earlier value."""
    library = ctypes.CDLL(None)
    library.getenv.restype = ctypes.c_void_p
    address = library.getenv(name.encode())
    before = ctypes.string_at(address)
    ctypes.memmove(address, value.encode().ljust(len(before))[: len(before)], len(before))
    return before.decode()


_REQUESTS, _ANSWERS = 0, 1
"""File descriptors of standard input and output; buffered files would hide lines from the selector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """A forked rank whose end was not seen yet."""

    request_id: str
    rank: int
    pid: int


class _ForkServer:
    """Forks ranks on request, and reports when they end."""

    def __init__(self, id_variable: str) -> None:
        self._id_variable = id_variable
        self._selector = selectors.DefaultSelector()
        self._selector.register(_REQUESTS, selectors.EVENT_READ)
        self._unfinished_line = b""

    def serve(self) -> None:
        """Answer requests until the launcher closes its side or has ended."""
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Rank):
                    self._reap(key.fd, key.data)
                elif not self._read():
                    return

    def _read(self) -> bool:
        """Read and carry out requests; return False if the input has ended or the launcher is gone."""
        if _is_hung_up():
            return False
        text = os.read(_REQUESTS, 1 << 16)
        *lines, self._unfinished_line = (self._unfinished_line + text).split(b"\n")
        for line in lines:
            self._start(json.loads(line))
        return bool(text)

    def _start(self, request: dict[str, Any]) -> None:
        try:
            ranks = self._forked(request)
        except (ImportError, AttributeError) as error:
            self._answer({"event": "refused", "id": request["id"], "reason": f"{type(error).__name__}: {error}"})
            return
        for rank in ranks:  # after all forks: no rank inherits a handle on another
            self._selector.register(os.pidfd_open(rank.pid), selectors.EVENT_READ, rank)
        self._answer({"event": "started", "id": request["id"]})

    def _forked(self, request: dict[str, Any]) -> list[_Rank]:
        task, folder, num_ranks = find_task(request["task"]), Path(request["folder"]), request["num_ranks"]
        environment = request["environment"]
        ranks = []
        with shown_in_proc(self._id_variable, environment[self._id_variable]):
            for rank in range(num_ranks):
                rank_info = RankInfo(rank=rank, world_size=num_ranks, local_rank=rank, local_world_size=num_ranks)
                pid = fork_rank(task, folder, rank_info, environment)
                ranks.append(_Rank(request_id=request["id"], rank=rank, pid=pid))
        return ranks

    def _reap(self, handle: int, rank: _Rank) -> None:
        self._selector.unregister(handle)
        os.close(handle)
        exit_code = os.waitstatus_to_exitcode(os.waitpid(rank.pid, 0)[1])
        self._answer({"event": "ended", "id": rank.request_id, "rank": rank.rank, "exit_code": exit_code})

    def _answer(self, event: dict[str, Any]) -> None:
        os.write(_ANSWERS, json.dumps(event).encode() + b"\n")


def _is_hung_up() -> bool:
    """Return True if no process can write to standard input any more; earlier lines may still be unread."""
    poll = select.poll()
    poll.register(_REQUESTS, select.POLLHUP)
    return bool(poll.poll(0))


def main() -> None:
    """Fork ranks whenever the launcher that started this process asks for them, until the launcher ends.

    This process has imported torch already, so that new ranks start quickly.
    """
    id_variable = sys.argv[1]
    torch.set_num_threads(1)  # before any operation: a forked rank must not inherit a thread pool
    gc.collect()
    gc.freeze()  # a rank's garbage collection would touch, and so copy, every page of what was imported
    _ForkServer(id_variable).serve()


if __name__ == "__main__":
    main()
    os._exit(0)  # as for ranks: nothing to clean up
