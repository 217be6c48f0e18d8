"""What a trainer prints: read as it comes, so that lines have times, and kept as far as anybody will look."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO

import structlog

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
