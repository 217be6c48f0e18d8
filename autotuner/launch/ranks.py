"""The ways to start the ranks of a trial, what a launcher needs of each, and the processes that they are."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import psutil

from autotuner.core.errors import AutotunerError
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.reports import TrialFiles

# The processes of one attempt at a trial: found by its id in their environment, ended for certain.

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


# The ways to start the ranks of a trial: what a launcher needs of each.


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A rank that ended with something other than 0; below zero is the signal that ended it."""

    rank: int
    exit_code: int


class Ranks(Protocol):
    """The ranks of one trial, from their start on."""

    def ended(self) -> bool:
        """Whether all of them are gone, or nothing is left that could start them."""
        ...

    def deaths(self) -> Sequence[Death]:
        """Ranks that died of themselves, in the order they were found."""
        ...

    def log(self) -> str:
        """What whoever started them had to say."""
        ...

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        """End the ranks that are left, and return when none is that can be ended.

        Args:
            grace_s: What they may take to leave after SIGTERM; those that could use it get it.

        Returns:
            Pids of processes that SIGKILL did not end; see ``end_all``.
        """
        ...


class Starter(Protocol):
    """Starts the ranks of trials on this machine, of several at once if asked from several threads."""

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        """Start ranks that read ``files.spec`` and append to ``files.reports``; returns before they run.

        Args:
            spec: The trial, of which only the number of ranks counts here.
            files: The same trial in files.
            environment: All variables of the ranks' processes; ``ATTEMPT_ID`` is one of them.
        """
        ...

    def close(self) -> None:
        """Release what was kept for the next trial; a later start is as good as the first."""
        ...


class CannotRun(AutotunerError):
    """A launcher's own trouble: a disk that is full, a work directory that is gone, a process that cannot start."""


@contextmanager
def launcher_work() -> Iterator[None]:
    """Files and processes of the launcher's own: an ``OSError`` in here is ``CannotRun``, and no watcher is asked."""
    try:
        yield
    except OSError as error:
        raise CannotRun(str(error)) from error


def environment(spec: TrialSpec, attempt_id: str, devices: Sequence[str]) -> dict[str, str]:
    """The caller's environment, with one thread per rank, its devices, and gloo on the loopback of this one machine.

    Local ranks count from 0 within the devices.
    """
    variables = {**os.environ, ATTEMPT_ID: attempt_id, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if spec.device == "cpu":
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    else:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return variables


# A port of this machine for ranks to meet at.

_PORTS = range(10_000, 20_000)
"""Below those that the kernel gives to connections (ip_local_port_range, from 32768): none takes it meanwhile."""

_CHOICE = random.SystemRandom()


def free_port() -> int:
    """One that nobody listens at now; another process may choose it too, with odds of one in ten thousand."""
    while True:
        port = _CHOICE.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
