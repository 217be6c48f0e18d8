"""Tables: dataclasses whose fields are columns of equal length, tables again, or what all rows share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def mapped(change: Callable[[Column], Column], table: Any) -> Any:
    """The table with each column changed; what all rows share stays as it is."""
    if isinstance(table, np.ndarray):
        return change(table)
    if not is_dataclass(table):
        return table
    return type(table)(**{f.name: mapped(change, getattr(table, f.name)) for f in fields(table)})  # type: ignore[misc]


def columns_of(table: Any) -> Iterator[Column]:
    """Every column, in the order of the fields."""
    if isinstance(table, np.ndarray):
        yield table
    elif is_dataclass(table):
        for f in fields(table):
            yield from columns_of(getattr(table, f.name))


def write(source: Any, target: Any, rows: slice) -> None:
    """Copy a table into some rows of a longer one of the same type."""
    for column, longer in zip(columns_of(source), columns_of(target), strict=True):
        longer[rows] = column
