"""What a container has printed, followed by a thread and kept from its first byte."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable

import structlog

from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.kubernetes.api import Missing, Stream

_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")
"""What begins a line that the container printed; others are the kubelet's own words about its log."""

_log = structlog.get_logger(__name__)

_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 2.0


class PodLog:
    """Follows a container's log until it has ended; a connection that breaks is made anew.

    Kubernetes cannot serve a log from a byte or a line on, so it is read from its beginning again, and what is known is
    left out: a line is known by its words and the nanosecond that the container runtime took it at.

    Args:
        follow: Opens the log, each line after its moment.
        is_over: Whether the container has ended, or its pod is gone.
        last_words: What is to stand after all that it printed, once it has ended, given what it printed.
    """

    def __init__(
        self, follow: Callable[[], Stream], is_over: Callable[[], bool], last_words: Callable[[bytes], bytes]
    ) -> None:
        self._follow = follow
        self._is_over = is_over
        self._last_words = last_words
        self._printed = bytearray()
        self._known: Counter[bytes] = Counter()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="pod-log", daemon=True)
        self._thread.start()

    def read(self, offset: int) -> bytes:
        """What it printed from that byte on; whole lines, as long as it may print more."""
        with self._lock:
            return bytes(self._printed[offset:])

    def wait(self, timeout_s: float) -> None:
        """Until all that it printed is known, or the time is up."""
        self._thread.join(max(0.0, timeout_s))

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stopped.is_set():
            was_over, num_bytes = self._is_over(), len(self._printed)
            try:
                is_whole = self._read_through(is_last=was_over)
            except Missing:
                is_whole = True  # a pod that is gone says no more
            except (EngineUnavailable, EngineRefused):  # refused: the container is not quite there yet
                is_whole = False
            except Exception:  # the thread must go on, or the trial would seem to hang
                is_whole = False
                _log.exception("kubernetes.log_failed")
            if is_whole and was_over:
                self._add(self._last_words(bytes(self._printed)))
                return
            retry_s = _FIRST_RETRY_S if len(self._printed) > num_bytes else min(2 * retry_s, _LAST_RETRY_S)
            self._stopped.wait(retry_s)

    def _read_through(self, *, is_last: bool) -> bool:
        """Whether it was read to its end, as far as it goes by now."""
        known = self._known.copy()
        with self._follow() as self._stream:
            for line in self._stream if not self._stopped.is_set() else ():
                if not line.endswith(b"\n") and not is_last:
                    return False  # comes again, whole
                if known[line]:
                    known[line] -= 1
                elif moment := _MOMENT.match(line):
                    self._known[line] += 1
                    self._add(line[moment.end() :])
        return not self._stopped.is_set()

    def _add(self, printed: bytes) -> None:
        with self._lock:
            self._printed += printed
