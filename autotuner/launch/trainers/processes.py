"""The processes of one run of a trainer, as a launcher sees ranks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from autotuner.host import keeper
from autotuner.launch.processes import ATTEMPT_ID, end_all, processes_of
from autotuner.launch.ranks import Death
from autotuner.launch.trainers.output import Output

_KEEPER_S = 1.0
"""What the keeper gets to see that nothing is left below it."""

_LAST_WORDS_S = 1.0
"""A pipe ends with the last process that can write to it."""


class TrainerProcesses:
    """A keeper and all that it keeps; no process of it outlives ``end``, whatever session or environment it made.

    Args:
        command: Argument vector.
        directory: Where it is started.
        environment: All of its variables; ``ATTEMPT_ID`` is one of them.
        limit_bytes: Data that each of its processes may have; None: all there is.
        heard: Told each line that it prints.

    Raises:
        OSError: The directory is not there, or no process can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        limit_bytes: int | None,
        heard: Callable[[str, float], None],
    ) -> None:
        self._attempt_id = environment[ATTEMPT_ID]
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), str(limit_bytes or 0), *command],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None  # a pipe was asked for
        self._output = Output(self._keeper.stdout, heard)

    @property
    def exit_code(self) -> int | None:
        """Of the command; below zero is the signal that ended it. None while it runs."""
        return self._keeper.poll()

    def ended(self) -> bool:
        """Whether the command has ended."""
        return self._keeper.poll() is not None

    def deaths(self) -> Sequence[Death]:
        """None that are known before the command ends: who started the ranks ends the others when one dies."""
        return ()

    def log(self) -> str:
        """The last lines that were printed."""
        return self._output.text

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        """End all processes that are left, as ``Ranks`` says."""
        self._keeper.terminate()  # it asks all that it keeps to leave, and then leaves itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(grace_s)
        stuck = end_all(self._attempt_id, grace_s=0.0, living=self._left)
        self._end_keeper()
        self._output.finish(_LAST_WORDS_S)
        return stuck or end_all(self._attempt_id, grace_s=0.0)

    def _end_keeper(self) -> None:
        """It has nothing left to keep, unless the kernel cannot end something."""
        try:
            self._keeper.wait(_KEEPER_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def living(self) -> Iterator[psutil.Process]:
        """The command and all that came of it."""
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._keeper.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        yield process

    def _left(self, attempt_id: str) -> Iterator[psutil.Process]:
        """Those that the environment tells, and those that the keeper adopted without it; the keeper ends by itself."""
        below = {process.pid: process for process in self.living()}
        signed = {process.pid: process for process in processes_of(attempt_id)}
        yield from (process for pid, process in (below | signed).items() if pid != self._keeper.pid)
