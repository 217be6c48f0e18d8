"""Cells of a row: text that means a number, a count or a switch, or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

Row = Mapping[str, str]

_MAX_COUNT = 10**9  # tokens of a step, and elements of a vocabulary, are fewer; more is a slip of the hand

_BLANK = ("", "-", "n/a", "na", "nan", "none", "null", "?", "unknown", "not stated")
"""What tables write where they have nothing to say."""


class UnusableRow(Exception):
    """The row cannot be predicted or judged.

    Attributes:
        reason: Why, in words that many rows share.
        detail: What is particular to this row.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def text(row: Row, *names: str) -> str:
    """The first of the cells that says something, without the space around it; empty where none does."""
    for name in names:
        cell = (row.get(name) or "").strip()
        if cell:
            return cell
    return ""


def is_true(cell: str, blank: bool = False) -> bool:
    """Whether the cell is a yes; ``blank`` is what an empty one means."""
    word = cell.strip().lower()
    return word in ("1", "1.0", "true", "yes", "on") if word else blank


def maybe_count(row: Row, *names: str, lowest: int = 1) -> int | None:
    """A whole number in the first cell that is not empty; None where all are.

    Raises:
        UnusableRow: The cell holds something else, or less than ``lowest``.
    """
    for name in names:
        cell = text(row, name).lower()
        if cell not in _BLANK:
            value = _number(name, cell)
            if not (lowest <= value <= _MAX_COUNT and value.is_integer()):
                raise UnusableRow(f"{name} is no count")
            return int(value)
    return None


def count(row: Row, *names: str) -> int:
    """What ``maybe_count`` finds, where there has to be one.

    Raises:
        UnusableRow: There is none.
    """
    value = maybe_count(row, *names)
    if value is None:
        raise UnusableRow(f"{names[0]} is not given")
    return value


def positive(row: Row, name: str) -> float:
    """A number above zero.

    Raises:
        UnusableRow: The cell holds something else.
    """
    value = _number(name, text(row, name))
    if value <= 0:
        raise UnusableRow(f"{name} is not above 0")
    return value


def maybe_positive(row: Row, name: str) -> float | None:
    """A number above zero; None where the cell says nothing.

    Raises:
        UnusableRow: The cell holds something else.
    """
    return None if text(row, name).lower() in _BLANK else positive(row, name)


def _number(name: str, cell: str) -> float:
    plain = re.sub(r"(?<=\d)[, _](?=\d{3})", "", cell).lstrip("~")  # 1,024 and ~704 are numbers too
    thousands = re.fullmatch(r"(\d{1,6})k", plain) if name == "seq_len" else None
    if thousands:  # 8k tokens are 8,192
        return 1024.0 * int(thousands[1])
    try:
        value = float(plain)
    except ValueError as error:
        raise UnusableRow(f"{name} is no number") from error
    if not math.isfinite(value):
        raise UnusableRow(f"{name} is no number")
    return value
