"""The ways to start the ranks of a trial: what a launcher needs of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotuner.domain.trial import TrialSpec
from autotuner.launch.files import TrialFiles
from autotuner.launch.processes import MARK

__all__ = ["Death", "Ranks", "Starter", "environment"]


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
        """Those that died of themselves, in the order they were found."""
        ...

    def log(self) -> str:
        """What whoever started them had to say."""
        ...

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        """End those that are left, and return when none is that can be ended.

        Args:
            grace_s: What they may take to leave after SIGTERM; those that could use it get it.

        Returns:
            Pids of processes that SIGKILL did not end; see ``end_all``.
        """
        ...


class Starter(Protocol):
    """Starts the ranks of trials on this machine; every process of a trial carries its mark."""

    def start(self, spec: TrialSpec, files: TrialFiles, mark: str) -> Ranks:
        """Start ranks that read ``files.spec`` and append to ``files.reports``; returns before they run."""
        ...

    def close(self) -> None:
        """Release what was kept for the next trial; a later start is as good as the first."""
        ...


def environment(spec: TrialSpec, mark: str) -> dict[str, str]:
    """The caller's environment, with one thread per rank and gloo on the loopback of this one machine."""
    variables = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if spec.device == "cpu":
        variables.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return variables
