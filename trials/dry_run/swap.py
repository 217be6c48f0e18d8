"""Putting something of our own in the place of a library's function, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["swapped"]

_ABSENT = object()


@contextmanager
def swapped(owner: type | ModuleType, name: str, value: object) -> Iterator[None]:
    """Where a class or module has this attribute instead of its own, or instead of the one that it inherits."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
