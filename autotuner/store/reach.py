"""Reach: a database that did not answer is left alone for a moment, so that not everybody waits for it."""

from __future__ import annotations

import threading
import time

from autotuner.core.errors import StoreUnavailable

_REST_S = 1.0
"""How long nobody asks after a question that was not answered."""

_QUESTION_S = 30.0
"""How long one may ask alone, longer than any answer is waited for."""


class Reach:
    """Whether a database answers, as all threads of a process saw it.

    While it does, nobody is held up. Once it did not, one thread asks and the others are refused at once: each would
    wait as long, and the threads that answer requests are few.

    Args:
        silences: Errors that say that nobody answered.
    """

    def __init__(self, *silences: type[Exception]) -> None:
        self._silences = silences
        self._mutex = threading.Lock()
        self._asked_next_at: float | None = None

    def ask(self) -> None:
        """Return if the caller may ask the database.

        Raises:
            StoreUnavailable: It did not answer, and another thread finds out whether it does again.
        """
        if self._asked_next_at is None:
            return
        with self._mutex:
            now = time.monotonic()
            if self._asked_next_at is not None and now < self._asked_next_at:
                raise StoreUnavailable("the database did not answer a moment ago and is not asked again yet")
            self._asked_next_at = now + _QUESTION_S

    def answered(self) -> None:
        """Let everybody ask."""
        self._asked_next_at = None

    def failed(self, error: BaseException | None) -> None:
        """Let nobody ask for a moment, where the error is one of the silences; a refusal is an answer."""
        with self._mutex:
            is_silent = isinstance(error, self._silences)
            self._asked_next_at = time.monotonic() + _REST_S if is_silent else None
