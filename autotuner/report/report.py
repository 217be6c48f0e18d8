"""A report: what one result says to people.

It holds values with their units, not text: a renderer writes ``Quantity(0.413, "share")`` as ``41.3 %``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["share", "chance", "s", "bytes"]
"""``share`` is in tenths of a hundredth, ``chance`` in whole ones, since nobody knows a chance better."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit and its 80 % interval."""

    value: float
    """In the base unit: seconds, bytes, 0..1."""
    unit: Unit
    relative_error: float | None = None
    """Half-width e of the interval from value / (1 + e) to value x (1 + e); None where it is unknown."""
    highest: float | None = None
    """What the interval cannot exceed, such as the peak of a precision; None: nothing, or 1 for a share."""


@dataclass(frozen=True, slots=True)
class LayoutWords:
    """A layout in the words of ``--layout``, to be copied in one piece, with remarks below it."""

    words: str
    remarks: tuple[str, ...] = ()


Cell = str | Quantity | LayoutWords


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    """Its head."""
    is_number: bool = True
    """Set flush right."""
    may_wrap: bool = False
    """Gives way where there is little room; a number is never cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under named columns. At most one column holds layouts."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Statements, each on a line of its own; quiet ones explain what stands above them."""

    items: Sequence[str]
    is_quiet: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What belongs together, under a title or without one."""

    title: str = ""
    blocks: Sequence[Table | Lines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one result says: the answer in one line, then what supports it."""

    headline: str
    sections: Sequence[Section]
