"""Silence where a library talks to the log of a rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["silenced_stderr"]


@contextmanager
def silenced_stderr() -> Iterator[None]:
    """Nothing that C++ writes to standard error gets there: its last lines are what a person reads of a dead rank."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
