"""A process that is asked one question: the request on standard input, the answer on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from autotuner.domain import wire
from autotuner.errors import InvalidInput

__all__ = ["answer_one"]

R = TypeVar("R")


def answer_one(of: type[R], answer: Callable[[R], object]) -> int:
    """Answer the request of this type; the exit status is 2 where it cannot be read."""
    try:
        request = wire.loads(of, sys.stdin.read())
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(wire.dumps(answer(request)) + "\n")
    return 0
