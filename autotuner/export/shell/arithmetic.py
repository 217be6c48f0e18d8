"""Values of a shell's arithmetic: whole numbers of 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

_LARGEST = 2**63


def whole_number(text: str) -> int | None:
    """Return a decimal number; None for anything else: a leading zero would mean octal."""
    plain = text.strip()
    return int(plain) if re.fullmatch(r"-?(0|[1-9]\d{0,17})", plain) else None


def binary(left: int, sign: str, right: int) -> int | None:
    """Return what an operator makes of two numbers; None where bash stops, wraps around, or it is not followed here."""
    value: int | None
    match sign:
        case "+":
            value = left + right
        case "-":
            value = left - right
        case "*":
            value = left * right
        case "/" | "%" if right:
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)  # rounded to zero, as C does
            value = quotient if sign == "/" else left - quotient * right
        case "**" if 0 <= right < 64:
            value = left**right
        case "<<" if 0 <= right < 63:
            value = left << right
        case ">>" if 0 <= right < 63:
            value = left >> right
        case "==" | "!=" | "<" | "<=" | ">" | ">=" | "&&" | "||":
            value = int(_COMPARISONS[sign](left, right))
        case ",":
            value = right
        case _:
            value = None
    return value if value is not None and -_LARGEST < value < _LARGEST else None


_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}
