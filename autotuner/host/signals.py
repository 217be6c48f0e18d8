"""Ctrl-C and SIGTERM, for commands and for a service inside a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` if SIGINT (Ctrl-C) or SIGTERM arrives while the block runs."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C while the block runs, so that clean-up code runs in both cases."""

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
