"""Turns to compute: so many at once, shared fairly between the callers who wait.

Threads ask for turns, and the pool computes; the rules for sharing are here, so that tests need no process.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum

from autotuner.core.errors import Busy

_CALLER: ContextVar[str] = ContextVar("caller of asides", default="")


@contextmanager
def asked_by(caller: str) -> Iterator[None]:
    """Count what is asked for inside this context against the share of the caller of that name."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def asker() -> str:
    """Return the name of the caller whose share counts here; empty where nobody said."""
    return _CALLER.get()


class _State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DROPPED = "dropped"  # for a caller who has fewer


@dataclass(slots=True, eq=False)
class _Turn:
    caller: str
    is_search: bool
    state: _State = _State.WAITING


class Turns:
    """Gives each free place to the caller who computes least, and among equals to the one served longest ago.

    A caller alone has all places. When too many wait, a caller with fewer takes the room of the one with most.

    Args:
        num_at_once: Places; where there are several, searches leave one to what is short.
        max_waiting: How many may wait for a place.
        seconds: How long one of them waits.
    """

    def __init__(self, num_at_once: int, *, max_waiting: int, seconds: float) -> None:
        self._num_at_once = num_at_once
        self._num_searches = max(1, num_at_once - 1)
        self._max_asked = num_at_once + max_waiting
        self._seconds = seconds
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []
        self._running: list[_Turn] = []
        self._served: list[str] = []  # callers who are here, the one served last at the end

    def callers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return who computes and who waits now, a caller as often as it has turns."""
        with self._changed:
            return tuple(each.caller for each in self._running), tuple(each.caller for each in self._waiting)

    @contextmanager
    def take(self, *, is_search: bool) -> Iterator[None]:
        """Hold a place inside this context.

        Raises:
            Busy: Too many wait, or none was free in time.
        """
        turn = _Turn(asker(), is_search)
        try:
            with self._changed:
                self._admit(turn)
                self._begin()
                self._changed.wait_for(lambda: turn.state is not _State.WAITING, self._seconds)
                self._require_running(turn)
            yield
        finally:
            with self._changed:
                self._remove(turn)
                self._begin()

    def _admit(self, turn: _Turn) -> None:
        num_asked = len(self._running) + len(self._waiting)
        if num_asked >= self._max_asked:
            num_waiting = Counter(each.caller for each in self._waiting)
            most = max(num_waiting, key=num_waiting.__getitem__)
            if num_waiting[most] <= num_waiting[turn.caller] + 1:
                raise Busy(f"{num_asked} computations run or wait already; come back later", retry_after_s=5)
            last = next(each for each in reversed(self._waiting) if each.caller == most)
            last.state = _State.DROPPED
            self._waiting.remove(last)
            self._changed.notify_all()
        self._waiting.append(turn)

    def _begin(self) -> None:
        """Give the free places to those who wait."""
        while len(self._running) < self._num_at_once:
            is_full = sum(each.is_search for each in self._running) >= self._num_searches
            able = [each for each in self._waiting if not (each.is_search and is_full)]
            if not able:
                return
            turn = min(able, key=self._precedence)
            turn.state = _State.RUNNING
            self._waiting.remove(turn)
            self._running.append(turn)
            here = {each.caller for each in (*self._waiting, *self._running)}
            self._served = [name for name in self._served if name in here and name != turn.caller] + [turn.caller]
            self._changed.notify_all()

    def _precedence(self, turn: _Turn) -> tuple[int, int]:
        """Return the order of callers; of one caller, who asked first is first in the list."""
        num_running = sum(each.caller == turn.caller for each in self._running)
        return num_running, self._served.index(turn.caller) if turn.caller in self._served else -1

    def _require_running(self, turn: _Turn) -> None:
        if turn.state is _State.DROPPED:
            rule = "most computations that wait are yours, so this one makes room for another caller's; come back later"
            raise Busy(rule, retry_after_s=5)
        if turn.state is _State.WAITING:
            waited = f"nothing was free to compute this within {self._seconds:g} s; come back later"
            raise Busy(waited, retry_after_s=self._seconds)

    def _remove(self, turn: _Turn) -> None:
        for turns in (self._waiting, self._running):
            if turn in turns:
                turns.remove(turn)
