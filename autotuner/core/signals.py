"""Ctrl-C and SIGTERM, for commands and for a service inside a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` if SIGINT (Ctrl-C) or SIGTERM arrives while the block runs."""
    with _handled(lambda _: stop(), signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C while the block runs, so that clean-up code runs in both cases."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT (Ctrl-C) and SIGTERM back until the block ends."""
    if threading.current_thread() is not threading.main_thread():  # handlers of signals run in the main thread only
        yield
        return
    arrived: list[int] = []
    try:
        with _handled(arrived.append, signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        for number in arrived:
            signal.raise_signal(number)


@contextmanager
def _handled(handle: Callable[[int], None], *numbers: signal.Signals) -> Iterator[None]:
    """Call ``handle`` with the number of each of these signals that arrives while the block runs."""

    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        handle(number)

    # A handler that was not set from Python reads as None, and could not be restored.
    previous = {number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) is not None}
    try:
        yield
    finally:
        for number, one in previous.items():
            signal.signal(number, one)
