"""A list as answers hold it: some of many values, and how many there are in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from autotuner.core.value import value

COUNTED_BEHIND = 10_000
"""What a list counts behind a page at most: counting what a team stores in years takes longer than reading a page."""

T = TypeVar("T")


@value
class Listed(Generic[T]):
    """Values of a list, in its order."""

    items: tuple[T, ...]
    total: int
    """How many there are in all; of very many, so many as were counted."""
    limit: int
    """How many were asked for at most."""
    offset: int = 0
    """How many were skipped before the first."""

    @classmethod
    def whole(cls, items: Sequence[T]) -> Listed[T]:
        """Return a list that holds all there is."""
        return cls(items=tuple(items), total=len(items), limit=len(items))


@value
class Stored(Listed[T], Generic[T]):
    """All things of one kind that callers stored, by name."""

    created_by: Mapping[str, str]
    """Who stored each, by its name; empty text where nobody was asked who they are."""

    @classmethod
    def by(cls, created_by: Mapping[str, str], items: Sequence[T]) -> Stored[T]:
        """Return a list that holds all there is, with the name of whoever stored each."""
        return cls(items=tuple(items), total=len(items), limit=len(items), created_by=dict(created_by))
