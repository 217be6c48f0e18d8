"""Checks that a constructor makes, each raising with the value, the rule and the nearest legal value."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from math import gcd, isqrt

from autotuner.core.errors import InvalidInput

__all__ = ["divides", "divisors", "fraction", "nearest_divisor", "non_negative", "one_of", "positive"]

_LARGEST_DIVIDED = 10**12
"""Its divisors take a tenth of a second to find; no size of a model or a cluster comes near it."""


def positive(owner: object, *fields: str) -> None:
    """Each named field is an integer or float above zero."""
    for field in fields:
        value = getattr(owner, field)
        if not value > 0:
            raise InvalidInput(field, value, "must be above 0", nearest=1 if isinstance(value, int) else None)


def non_negative(owner: object, *fields: str) -> None:
    """Each named field is zero or more."""
    for field in fields:
        value = getattr(owner, field)
        if not value >= 0:
            raise InvalidInput(field, value, "must be 0 or more", nearest=0)


def fraction(owner: object, *fields: str) -> None:
    """Each named field lies in 0..1, both ends allowed."""
    for field in fields:
        value = getattr(owner, field)
        if not 0.0 <= value <= 1.0:
            raise InvalidInput(field, value, "must lie in 0..1", nearest=min(max(value, 0.0), 1.0))


def divides(field: str, value: int, whole: int, whole_name: str) -> None:
    """``value`` divides ``whole`` without remainder; otherwise the nearest divisor is named."""
    if whole % value:
        raise InvalidInput(field, value, f"must divide {whole_name} ({whole})", nearest_divisor(value, whole))


def one_of(field: str, value: str, legal: Iterable[str]) -> None:
    """``value`` is one of the words in ``legal``."""
    words = tuple(legal)
    if value not in words:
        near = get_close_matches(value, words, 1)
        raise InvalidInput(field, value, f"must be one of {', '.join(words)}", near[0] if near else None)


def nearest_divisor(value: int, whole: int) -> int:
    """The divisor of ``whole`` closest to ``value``, the smaller one on a tie; of a huge number one that both share."""
    if whole > _LARGEST_DIVIDED:
        return gcd(value, whole)
    return min(divisors(whole), key=lambda d: (abs(d - value), d))


@lru_cache(maxsize=1024)
def divisors(whole: int) -> tuple[int, ...]:
    """Every divisor, rising; work grows with the square root of ``whole``."""
    small = [d for d in range(1, isqrt(whole) + 1) if whole % d == 0]
    return tuple(sorted({*small, *(whole // d for d in small)}))
