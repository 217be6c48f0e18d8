"""Functions that tests have computed in subprocesses."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from autotuner.core.errors import NotFound


def fork_of(_: int) -> int:
    """Which process this is forked from."""
    return os.getppid()


def spins() -> None:
    """Computes for ever, in C code that Python's signal handlers would wait for."""
    while True:
        pow(3, 10**7)


def waits(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def held_bytes(num_bytes: int) -> int:
    return int(np.ones(num_bytes // 8).nbytes)


def fills() -> None:
    held_bytes(10**12)


def refuses(name: str) -> None:
    raise NotFound("model", name, "nearest")


def slips() -> None:
    raise AssertionError("an error of ours")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def says_much() -> int:
    """What is printed reaches nobody who reads answers."""
    print("x" * 10**6)  # noqa: T201
    print("y", file=sys.stderr)  # noqa: T201
    return 1
