"""Tables: dataclasses and mappings of columns of equal length, of other tables, or of values that all rows share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
Table = TypeVar("Table")


def zipped(change: Callable[..., Any], *tables: Table) -> Table:
    """Return a table whose columns are the results of ``change``, called with the same column of every given table.

    Values that are not columns come from the first table.
    """
    first: Any = tables[0]
    if isinstance(first, np.ndarray):
        return cast("Table", change(*tables))
    if isinstance(first, Mapping):
        return cast("Table", {key: zipped(change, *(table[key] for table in tables)) for key in first})  # type: ignore[index]
    cls: Any = type(first)
    names, values_of = _fields_of(cls)
    if not names:
        return tables[0]
    changed = map(partial(zipped, change), *map(values_of, tables))
    return cast("Table", cls(**dict(zip(names, changed, strict=True))))


@cache
def _fields_of(cls: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the fields of a dataclass, and a function that returns their values in a given object.

    There are no names for any other type.
    """
    names = tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ()
    if len(names) == 1:
        return names, lambda table: (getattr(table, names[0]),)
    return names, attrgetter(*names) if names else lambda _: ()


def taken(table: Table, rows: npt.NDArray[np.integer[Any]]) -> Table:
    """Return a table with the rows that have these numbers, in the order of the numbers."""
    if len(rows) == 1 == len(next(columns_of(table), ())):
        return table  # the table of one layout has no other row
    return zipped(lambda column: column.take(rows, axis=0), table)


def row(table: Any, index: int) -> Any:  # a generic class over its numbers has no type that says what changes
    """Return one row of a table: an object of the same type, with a single number in place of each column."""
    return zipped(lambda column: column.item(index), table)


def where(rows: Column, one: Table, other: Table) -> Table:
    """Return a table with the rows of ``one`` where the mask ``rows`` is True, and the rows of ``other`` elsewhere.

    Example:
        >>> one, other = {"s": np.array([1.0, 2.0])}, {"s": np.array([3.0, 4.0])}
        >>> where(np.array([True, False]), one, other)["s"].tolist()
        [1.0, 4.0]
    """
    return zipped(partial(np.where, rows), one, other)


def beside(one: Table, other: Table) -> Table:
    """Return a table with all rows of ``one``, followed by all rows of ``other``."""
    return zipped(lambda *columns: np.concatenate(columns), one, other)


def columns_of(table: Any) -> Iterator[Column]:
    """Yield every column of a table, and of the tables in it, in the order of the fields."""
    if isinstance(table, np.ndarray):
        yield table
    elif isinstance(table, Mapping):
        for one in table.values():
            yield from columns_of(one)
    else:
        for value in _fields_of(table.__class__)[1](table):
            yield from columns_of(value)


def write(source: Any, target: Any, rows: slice) -> None:
    """Copy a table into the given rows of a longer table of the same type. The longer table is changed in place."""
    for column, longer in zip(columns_of(source), columns_of(target), strict=True):
        longer[rows] = column


class Additive:
    """A base class for tables whose columns are seconds. ``+`` and ``-`` combine two tables; ``*`` scales one.

    Each operation works column by column.
    """

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        return zipped(np.add, self, other)

    def __sub__(self, other: Self) -> Self:
        return zipped(np.subtract, self, other)

    def __mul__(self, count: Column | float) -> Self:
        return zipped(lambda seconds: seconds * count, self)
