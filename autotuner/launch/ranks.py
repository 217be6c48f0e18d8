"""The ways to start the ranks of a trial: what a launcher needs of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from autotuner.core.errors import AutotunerError
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.processes import ATTEMPT_ID
from autotuner.launch.reports import TrialFiles


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
