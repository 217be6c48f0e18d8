"""A list in an answer: some of many items, and the total number of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from autotuner.core.value import value

COUNTED_BEHIND = 10_000
"""Most items that are counted after the end of a page, because counting the records of years takes longer than reading
a page."""

T = TypeVar("T")


@value
class Listed(Generic[T]):
    """A page of a list: some of the list's items in order, and the total number of items."""

    items: tuple[T, ...]
    total: int
    """Number of items in all. In a very long list, counting stops early."""
    limit: int
    """Most items that were requested."""
    offset: int = 0
    """Number of items that were skipped before the first item."""

    @classmethod
    def whole(cls, items: Sequence[T]) -> Listed[T]:
        """Return a page that holds all items of a list."""
        return cls(items=tuple(items), total=len(items), limit=len(items))


@value
class Stored(Listed[T], Generic[T]):
    """All stored objects of one kind, with the name of the caller who stored each one."""

    created_by: Mapping[str, str]
    """Name of the caller who stored each object, by the object's name; empty if the service has no login."""

    @classmethod
    def by(cls, created_by: Mapping[str, str], items: Sequence[T]) -> Stored[T]:
        """Return a page that holds all items of a list, with the caller who stored each one.

        Args:
            created_by: For each name of an object, the name of the caller who stored it.
            items: The stored objects.
        """
        return cls(items=tuple(items), total=len(items), limit=len(items), created_by=dict(created_by))
