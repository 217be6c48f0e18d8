"""Values of a shell's arithmetic: whole numbers, + - * / %, parentheses."""

from __future__ import annotations

import re

__all__ = ["arithmetic"]

_TOKEN = re.compile(r"\s*(\d{1,18}|[-+*/%()])")
_LONGEST = 120
"""Characters of an expression that is computed: no launch script needs more, and nothing nests deeper."""


def arithmetic(expression: str) -> int | None:
    """What it amounts to; None where it is none of whole numbers, + - * / % and parentheses."""
    found = _TOKEN.findall(expression) if len(expression) <= _LONGEST else []
    if not found or "".join(found) != "".join(expression.split()):
        return None
    try:
        sums = _Sums(found)
        value = sums.total()
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return value if sums.is_done else None


class _Sums:
    """Recursive descent over tokens."""

    def __init__(self, found: list[str]) -> None:
        self._rest = found[::-1]

    @property
    def is_done(self) -> bool:
        return not self._rest

    def total(self) -> int:
        value = self._product()
        while self._rest and self._rest[-1] in "+-":
            value += self._product() if self._rest.pop() == "+" else -self._product()
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._rest and self._rest[-1] in "*/%":
            operator, other = self._rest.pop(), self._factor()
            value = value * other if operator == "*" else _towards_zero(value, other, rest=operator == "%")
        return value

    def _factor(self) -> int:
        token = self._rest.pop()
        if token in "+-":
            return self._factor() if token == "+" else -self._factor()
        if token != "(":
            return int(token)
        value = self.total()
        if self._rest.pop() != ")":
            raise ValueError(token)
        return value


def _towards_zero(value: int, other: int, *, rest: bool) -> int:
    """Divide as C does."""
    quotient = abs(value) // abs(other) * (1 if (value < 0) == (other < 0) else -1)
    return value - quotient * other if rest else quotient
