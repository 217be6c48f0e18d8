"""Asides in processes: as many at once as there is room for, each with its time and its memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from autotuner.core.errors import TooCostly
from autotuner.core.units import format_bytes
from autotuner.search.asides import AsidesStanding
from autotuner.service.asides.frames import Limits, Outcome, receive, send
from autotuner.service.asides.turns import Turns

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_MAX_WAITING = 16
"""More are told to come back: each of these holds a thread of the service, which has 40."""

_LATE_S = 20.0
"""What importing, forking and sending may take beside the computation."""


class AsidePool:
    """Forks a process for each computation from one that has imported everything and has no threads.

    Args:
        num_at_once: Processes that compute at once; where there are several, searches leave one to what is short.
        limits: What each may take; it waits for its turn no longer than that.
        warm: ``module:function`` to call in the process that is forked, which imports and reads what all need.
    """

    def __init__(self, num_at_once: int, limits: Limits, *, warm: str) -> None:
        self._limits = limits
        self._forks = _Forks(warm)
        self._turns = Turns(num_at_once, max_waiting=_MAX_WAITING, seconds=limits.seconds)
        self._mutex = threading.Lock()
        self._ended = 0

    @property
    def standing(self) -> AsidesStanding:
        """How they stand now."""
        running, waiting = self._turns.callers()
        return AsidesStanding(num_running=len(running), num_waiting=len(waiting), num_ended=self._ended)

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call it in a process of its own."""
        with self._turns.take(is_search=False):
            return cast("Answer", self._answer((function, args, kwargs)))

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call it in a process of its own, and keep one free for what is short."""
        with self._turns.take(is_search=True):
            return cast("Answer", self._answer((function, args, kwargs)))

    def close(self) -> None:
        """End what is computed, and what it was forked from."""
        self._forks.close()

    # ------------------------------------------------------------------ answers
    def _answer(self, question: object) -> object:
        started = time.monotonic()
        try:
            outcome, value = self._asked_of_a_fork(question)
        except (EOFError, OSError) as error:
            self._forks.require_alive()
            raise self._too_costly(time.monotonic() - started) from error
        match outcome:
            case Outcome.ANSWERED:
                return value
            case Outcome.RAISED:
                assert isinstance(value, Exception)
                raise value
            case Outcome.OUT_OF_MEMORY:
                raise self._too_costly(0.0, is_out_of_memory=True)
            case Outcome.BROKEN:
                raise RuntimeError(f"in an aside:\n{value}")

    def _asked_of_a_fork(self, question: object) -> tuple[Outcome, object]:
        connection = self._forks.fork(self._limits)
        with connection:
            connection.settimeout(self._limits.seconds + _LATE_S)
            send(connection, question)
            return cast("tuple[Outcome, object]", receive(connection))

    def _too_costly(self, took_s: float, *, is_out_of_memory: bool = False) -> TooCostly:
        with self._mutex:
            self._ended += 1
        if is_out_of_memory:
            return TooCostly(f"this takes more than {format_bytes(self._limits.memory_bytes)} of memory; ask for less")
        if took_s >= self._limits.seconds:
            return TooCostly(f"this takes longer than {self._limits.seconds:g} s; ask for less")
        return TooCostly("the process that computed this was ended, as where no memory is left; ask for less")


class _Forks:
    """The process that asides are forked from, started when it is first needed and again if it is gone."""

    def __init__(self, warm: str) -> None:
        self._warm = warm
        self._mutex = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, limits: Limits) -> socket.socket:
        """A connection to a new aside."""
        ours, theirs = socket.socketpair()
        with theirs, self._mutex:
            if self._process is not None and self._process.poll() is not None:
                self._end()  # an aside that it left may hold its socket open for a moment, and takes nothing from it
            try:
                self._hand_over(theirs, limits)
            except OSError:  # the process is gone
                self._end()
                self._hand_over(theirs, limits)
        return ours

    def require_alive(self) -> None:
        """Return unless the process ended by itself, which is an error of ours."""
        with self._mutex:
            status = None if self._process is None else self._process.poll()
        if status is not None and status > 0:
            raise RuntimeError(f"the process that computations are forked from ended with status {status}")

    def close(self) -> None:
        """End it, and with it all asides."""
        with self._mutex:
            self._end()

    def _hand_over(self, connection: socket.socket, limits: Limits) -> None:
        if self._control is None:
            self._start()
        assert self._control is not None
        socket.send_fds(self._control, [limits.packed()], [connection.fileno()])

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "autotuner.service.asides.server", self._warm],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.wait()
        self._control = self._process = None
