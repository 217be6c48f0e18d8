"""Subprocesses for long computations: a limited number at once, with limits of time and memory, shared fairly."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast

from autotuner.core.errors import AutotunerError, Busy, TooCostly
from autotuner.core.units import format_bytes
from autotuner.search.compute import ComputeLoad

_CALLER: ContextVar[str] = ContextVar("caller of compute subprocesses", default="")


@contextmanager
def asked_by(caller: str) -> Iterator[None]:
    """Count the computations that this block requests as computations of the caller with that name.

    Each caller has a fair share of the computations that may run at the same time.
    """
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def asker() -> str:
    """Return the name of the caller for whom the current block requests computations; empty if no caller was set."""
    return _CALLER.get()


class _State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DROPPED = "dropped"  # dropped in favour of a caller with fewer requests


@dataclass(slots=True, eq=False)
class _Turn:
    caller: str
    is_search: bool
    state: _State = _State.WAITING


class Turns:
    """Limits the number of computations that run at the same time, and shares their places fairly among callers.

    A free place goes to the caller with the fewest running computations. If several callers have the fewest, it goes to
    the caller whose last place is longest ago. A single caller gets all places. If the queue is full, a caller with
    fewer computations takes a place in the queue from the caller with the most.

    Args:
        num_at_once: Number of places. If there are several, long computations (searches) leave one place free for short
            computations.
        max_waiting: Number of computations that may wait for a place.
        seconds: Longest time for which a computation waits.
    """

    def __init__(self, num_at_once: int, *, max_waiting: int, seconds: float) -> None:
        self._num_at_once = num_at_once
        self._num_searches = max(1, num_at_once - 1)
        self._max_asked = num_at_once + max_waiting
        self._seconds = seconds
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []
        self._running: list[_Turn] = []
        self._served: list[str] = []  # present callers; the one that was served last is at the end

    def callers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the callers of the running computations, and the callers of the waiting computations.

        Each of the two tuples has one name for each computation, so a name may occur several times.
        """
        with self._changed:
            return tuple(each.caller for each in self._running), tuple(each.caller for each in self._waiting)

    @contextmanager
    def take(self, *, is_search: bool) -> Iterator[None]:
        """Wait until a computation of the caller may run, and hold its place until the block ends.

        ``is_search`` is True for a long computation.

        Raises:
            Busy: Too many computations wait, or no place became free in time.
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
                raise Busy(f"{num_asked} computations are already running or waiting; try again later", retry_after_s=5)
            last = next(each for each in reversed(self._waiting) if each.caller == most)
            last.state = _State.DROPPED
            self._waiting.remove(last)
            self._changed.notify_all()
        self._waiting.append(turn)

    def _begin(self) -> None:
        """Give the free places to waiting callers, in the order of ``_precedence``."""
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
        """Return the sort key of a waiting caller: callers with fewer running computations come first.

        Among equals, the caller that was served longest ago comes first; one caller's requests keep their order.
        """
        num_running = sum(each.caller == turn.caller for each in self._running)
        return num_running, self._served.index(turn.caller) if turn.caller in self._served else -1

    def _require_running(self, turn: _Turn) -> None:
        if turn.state is _State.DROPPED:
            rule = (
                "the queue of computations is full, and you have the most in it, so this one was removed for "
                "another caller; try again later"
            )
            raise Busy(rule, retry_after_s=5)
        if turn.state is _State.WAITING:
            waited = f"the service was too busy to compute this within {self._seconds:g} s; try again later"
            raise Busy(waited, retry_after_s=self._seconds)

    def _remove(self, turn: _Turn) -> None:
        for turns in (self._waiting, self._running):
            if turn in turns:
                turns.remove(turn)


Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_MAX_WAITING = 16
"""Maximum number of waiting callers. Each of them holds one of the service's 40 threads, so further callers are asked
to come back later."""

_LATE_S = 20.0
"""Extra seconds for importing, forking and sending, beside the time limit of the computation."""

_PRELOADED = ["__main__", "autotuner.service.preload"]
"""Modules imported before the fork. Without ``__main__``, each subprocess would import the service's main program."""

Outcome = Literal["answered", "raised", "out_of_memory", "broken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the time and the memory that one computation in a process of its own may use."""

    seconds: float
    memory_bytes: int
    """Bytes that the computation may use beyond the memory that its process has at the start."""


class ComputePool:
    """Runs each computation in a new process, so that time and memory can be limited.

    A server process, the fork server of ``multiprocessing``, has imported all modules and forks the new processes. It
    ends with the service, and is started again if it has died.

    Args:
        num_at_once: Number of computations that may run at the same time. If it is above 1, long computations
            (searches) leave one place free for short computations.
        limits: Time and memory that one computation may take. A computation also waits no longer than this time for a
            place.
    """

    def __init__(self, num_at_once: int, limits: Limits) -> None:
        self._limits = limits
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._turns = Turns(num_at_once, max_waiting=_MAX_WAITING, seconds=limits.seconds)
        self._mutex = threading.Lock()
        self._running: set[BaseProcess] = set()
        self._ended = 0

    def prepare(self) -> None:
        """Start the server that forks processes, if it does not run; it imports its modules in the background."""
        ensure_running()

    @property
    def standing(self) -> ComputeLoad:
        """Return how many computations run now, how many wait, and how many were ended without an answer."""
        running, waiting = self._turns.callers()
        return ComputeLoad(num_running=len(running), num_waiting=len(waiting), num_ended=self._ended)

    def ask(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that takes less than about a second in a new process, and return its result."""
        with self._turns.take(is_search=False):
            return cast("Answer", self._answer(function, args, kwargs))

    def search(self, function: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        """Call a function that takes long, such as a search, in a new process, and return its result.

        Such functions leave one place free for short functions.
        """
        with self._turns.take(is_search=True):
            return cast("Answer", self._answer(function, args, kwargs))

    def close(self) -> None:
        """Kill the processes of all running computations. Use it when the service ends."""
        with self._mutex:
            for process in self._running:
                process.kill()

    # ------------------------------------------------------------------ answers
    def _answer(self, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, Any]) -> object:
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_compute, args=(theirs, self._limits, function, args, kwargs))
        try:
            with self._mutex:
                process.start()
                self._running.add(process)
            theirs.close()  # so that the pipe ends with that process
            outcome, value = self._received(ours, process)
        finally:
            self._end(process)
            ours.close()
        match outcome:
            case "answered":
                return value
            case "raised":
                assert isinstance(value, Exception)
                raise value
            case "out_of_memory":
                raise self._too_costly(
                    f"this computation needs more than {format_bytes(self._limits.memory_bytes)} of memory"
                )
            case "broken":
                raise RuntimeError(f"in a compute subprocess:\n{value}")

    def _received(self, connection: Connection, process: BaseProcess) -> tuple[Outcome, object]:
        try:
            if connection.poll(self._limits.seconds + _LATE_S):
                return cast("tuple[Outcome, object]", connection.recv())
        except EOFError:
            process.join()
            if process.exitcode != -signal.SIGALRM:
                said = "the process of this computation was ended from outside, probably because no memory was left"
                raise self._too_costly(said) from None
        raise self._too_costly(f"this computation takes longer than {self._limits.seconds:g} s")

    def _end(self, process: BaseProcess) -> None:
        with self._mutex:
            self._running.discard(process)
        if process.pid is not None:
            process.kill()
            process.join()

    def _too_costly(self, said: str) -> TooCostly:
        with self._mutex:
            self._ended += 1
        return TooCostly(f"{said}; ask for less, such as a smaller cluster or fewer values")


# ---------------------------------------------------------------------- in the new process
def _compute(
    connection: Connection,
    limits: Limits,
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, Any],
) -> None:
    """Compute one answer, send it, and end the process; the limits of time and memory end it earlier."""
    gc.disable()  # the process ends with its answer
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends
    threading.Thread(target=_end_with_service, daemon=True).start()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)  # ends C code, too
    _limit_memory(limits.memory_bytes)
    connection.send(_outcome(function, args, kwargs))
    os._exit(0)


def _outcome(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, Any]
) -> tuple[Outcome, object]:
    try:
        return "answered", function(*args, **kwargs)
    except AutotunerError as error:
        return "raised", error
    except MemoryError:
        return "out_of_memory", None
    except Exception:
        return "broken", traceback.format_exc()


def _limit_memory(num_bytes: int) -> None:
    """Limit the memory of this process to what it has now plus ``num_bytes``.

    Do nothing if the kernel does not tell its size.
    """
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        has_bytes = int(sizes.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (has_bytes + num_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with_service() -> None:
    """End this process when the service has ended; code that never releases the interpreter is ended by its timer."""
    service = multiprocessing.parent_process()
    assert service is not None, "the service started it"
    service.join()
    os._exit(1)
