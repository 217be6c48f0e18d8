"""A table as CSV, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence

from autotuner.search.table.column import Column, Value
from autotuner.search.table.row import TableRow

_LAYOUT = "layout"

_ERROR = "_error"
"""Behind the name of a column: half the width of its interval."""


def names_of(columns: Sequence[Column]) -> tuple[str, ...]:
    """Names of the cells of a row: of each column, and of its error where it has one."""
    return tuple(name for column in columns for name, _ in _cells(column))


def values_of(row: TableRow, columns: Sequence[Column]) -> tuple[Value, ...]:
    """The cells of a row, in the order of ``names_of``."""
    return tuple(value(row) for column in columns for _, value in _cells(column))


def as_csv(rows: Iterable[TableRow], columns: Sequence[Column]) -> str:
    """The rows as CSV with a head (RFC 4180): SI units, nothing where nothing is known, the layout in words last."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    others = tuple(column for column in columns if column.name != _LAYOUT)
    writer.writerow((*names_of(others), _LAYOUT))
    writer.writerows((*values_of(row, others), str(row.layout)) for row in rows)
    return written.getvalue()


def _cells(column: Column) -> Iterator[tuple[str, Callable[[TableRow], Value]]]:
    yield column.name, column.value
    if column.error is not None:
        yield f"{column.name}{_ERROR}", column.error
