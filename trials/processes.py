"""Helpers for processes of a trial: dying with the parent, answering on standard streams, silencing standard error."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from autotuner.core import codec
from autotuner.core.errors import InvalidInput

# Dying with the parent, so that no process of a trial outlives whoever started it.

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(signal_number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when the thread that started this process ends.

    Only Linux can do so.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal_number))


# Standard streams of a process: a request answered on them, and silence on standard error.

R = TypeVar("R")


def serve_one(request_type: type[R], answer: Callable[[R], object]) -> int:
    """Read one request from standard input, and write its answer to standard output.

    Args:
        request_type: The type of the request, which is read as JSON.
        answer: Function that computes the answer to a request.

    Returns:
        The exit code: 2 if the request cannot be read.
    """
    try:
        request = codec.loads(request_type, sys.stdin.read())
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(codec.dumps(answer(request)) + "\n")
    return 0


@contextmanager
def silence_stderr() -> Iterator[None]:
    """Discard standard error while the block runs, including output of C++ code.

    When a rank dies, people see the last lines of its standard error. Unimportant output must not fill these lines.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
