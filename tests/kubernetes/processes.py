"""The container runtime of a machine that is no real one: containers are processes, their logs lines with a moment."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import psutil

_MARK = "FAKE_CONTAINER"
"""Variable of every process of a container, by which all of them are found."""


class Container:
    """One container that runs: a process and all below it, and what they print.

    Args:
        name: Unique.
        command: With its arguments.
        variables: All that it has.
    """

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._name = name
        self._lines: list[bytes] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            list(command),
            env={**variables, _MARK: name},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """As Kubernetes writes it, 128 and the signal's number where one ended it; None while it runs."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def terminate(self) -> None:
        """Tell its first process to leave."""
        with suppress(OSError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all of its processes, as the end of its first one does in a container, and wait for them."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self._name:
                    process.kill()
        self._process.wait()
        self._reader.join()

    def log(self, *, follow: bool) -> Iterator[bytes]:
        """Its lines, each after its moment; to the end, where they are followed."""
        sent = 0
        while True:
            with self._changed:
                while follow and sent == len(self._lines) and self._reader.is_alive():
                    self._changed.wait(0.1)
                new, is_last = self._lines[sent:], not self._reader.is_alive()
            yield from new
            sent += len(new)
            if not new and (is_last or not follow):
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._changed:
                    self._lines.append(_moment() + b" " + line)
                    self._changed.notify_all()


def own_variables() -> dict[str, str]:
    """What an image would bring."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "LANG", "TMPDIR") if name in os.environ}


def _moment() -> bytes:
    now_ns = time.time_ns()
    seconds = datetime.fromtimestamp(now_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{seconds}.{now_ns % 10**9:09d}Z".encode()
