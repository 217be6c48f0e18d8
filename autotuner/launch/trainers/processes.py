"""The processes of one run of a trainer, as a launcher sees ranks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil
import structlog

from autotuner.host import keeper
from autotuner.launch.ranks import ATTEMPT_ID, Death, end_all, processes_of

# What a trainer prints: read as it comes, so that lines have times, and kept as far as anybody will look.

_KEPT_LINES = 400
_LONGEST_LINE = 2000
"""Characters of a line that are kept: a progress bar that never ends a line must not fill the memory."""

_CHUNK_BYTES = 1 << 16

_log = structlog.get_logger(__name__)


class Output:
    """Reads a pipe to its end on a thread of its own.

    Args:
        pipe: What the trainer and all that it starts write to, standard output and error alike.
        heard: Told each line and the moment it came, on the monotonic clock; a progress bar's returns end lines too.
    """

    def __init__(self, pipe: IO[bytes], heard: Callable[[str, float], None]) -> None:
        self._pipe = pipe
        self._heard = heard
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._rest = b""
        self._thread = threading.Thread(target=self._read, name="autotuner-output", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The last lines, oldest first."""
        return "\n".join(list(self._lines))

    def finish(self, timeout_s: float) -> None:
        """Wait for the end of what was printed, which comes when no process is left that could print."""
        self._thread.join(timeout_s)

    def _read(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
                self._take(chunk, time.monotonic())
        self._take(b"\n", time.monotonic())

    def _take(self, chunk: bytes, at_s: float) -> None:
        *lines, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > _CHUNK_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                self._say(line[:_LONGEST_LINE].decode(errors="replace"), at_s)

    def _say(self, line: str, at_s: float) -> None:
        self._lines.append(line)
        try:
            self._heard(line, at_s)
        except Exception:  # a reader that breaks must not stop the trainer, which waits for the pipe to be read
            _log.exception("trainer.line_not_read")


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
