"""Column: one thing that a table says of every row, what it is called, and what it is counted in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from autotuner.search.table.row import TableRow

Value = int | float | str | None
"""What a cell holds: a number in SI units, a choice in words, or nothing."""

Unit = Literal["count", "word", "text", "share", "s", "bytes", "per_s", "dollars", "kwh", "kg", "value"]
"""What a column is counted in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One thing that a table says of every row.

    Attributes:
        name: In addresses and documents: ``tp``, ``step_time_s``.
        label: In the table's head.
        meaning: A sentence without a full stop.
        value: Of a row.
        error: Half the width of the interval of the value, in its unit; None where there is none to tell.
        words: Every value in order, the plainest first, of a choice; empty for anything else.
        short: Other names that people may write.
        is_usual: It is shown unless somebody chooses columns.
        best_is_high: The best rows have the highest values; None where no value is better than another.
    """

    name: str
    label: str
    meaning: str
    unit: Unit
    value: Callable[[TableRow], Value]
    error: Callable[[TableRow], float | None] | None = None
    words: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    is_usual: bool = False
    best_is_high: bool | None = None

    @property
    def is_figure(self) -> bool:
        """Whether it is a number that is known to some digits, so that nobody asks for an exact value."""
        return self.unit not in ("count", "word", "text")

    def key(self, row: TableRow) -> tuple[int, float | str]:
        """What rows are sorted by: choices in their own order."""
        value = self.value(row)
        if isinstance(value, str):
            return (0, float(self.words.index(value))) if value in self.words else (1, value)
        return (0, 0.0 if value is None else float(value))
