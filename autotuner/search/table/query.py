"""TableQuery: which rows of a table, in which order, with which columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from autotuner.search.table.column import Column
from autotuner.search.table.columns import COLUMNS, USUAL, column_named, columns_named
from autotuner.search.table.condition import Condition, conditions_said
from autotuner.search.table.row import TableRow


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """What somebody wants to see of a table.

    Attributes:
        conditions: All of which a row must meet.
        sort: The column that orders the rows; equal ones, and those without a value there, stay in their order.
        is_descending: From the highest value down.
        columns: In the order in which they are shown.
    """

    conditions: tuple[Condition, ...] = ()
    sort: Column = COLUMNS["rank"]
    is_descending: bool = False
    columns: tuple[Column, ...] = USUAL

    @classmethod
    def read(cls, where: str = "", sort: str = "", columns: str = "") -> Self:
        """The query in the words of an address.

        Args:
            where: ``tp=4 pp>1``, as ``conditions_said`` has it.
            sort: Name of a column, with ``-`` before it to begin with the highest; the rank where it is empty.
            columns: Names with commas between them; the usual ones where it is empty.

        Raises:
            InvalidInput: A part cannot be read, with the nearest that can.
        """
        return cls(
            conditions=conditions_said(where),
            sort=column_named(sort.removeprefix("-") or "rank", "sort"),
            is_descending=sort.startswith("-"),
            columns=columns_named(columns),
        )

    def rows(self, rows: Iterable[TableRow]) -> tuple[TableRow, ...]:
        """Those rows that meet every condition, in order."""
        kept = [row for row in rows if all(condition(row) for condition in self.conditions)]
        known = [row for row in kept if self.sort.value(row) is not None]
        unknown = [row for row in kept if self.sort.value(row) is None]
        return (*sorted(known, key=self.sort.key, reverse=self.is_descending), *unknown)
