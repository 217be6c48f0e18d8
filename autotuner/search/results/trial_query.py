"""TableQuery: a text that selects rows, order and columns of a table, such as ``tp=4 pp>1 recompute=none mfu>40``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, Self

from autotuner.core.documents import extended
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import parse_words
from autotuner.search.results.trial_table import (
    COLUMNS,
    USUAL,
    Column,
    TableRow,
    Unit,
    cells_of,
    column_named,
    columns_named,
)

FIELD = "where"
"""Name of the query text in error messages."""

_MOST = 30

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}

_ALSO = {"==": "=", "≥": ">=", "≤": "<=", "≠": "!=", "−": "-"}
"""Alternative spellings of comparison signs."""

_AROUND = re.compile(r"\s*(!=|>=|<=|=|>|<)\s*")
_CONDITION = re.compile(r"(?P<name>[^!<>=]+)(?P<sign>!=|>=|<=|=|>|<)(?P<value>[^!<>=]+)")
_NUMBER = re.compile(r"(?P<digits>-?(\d+(\.\d*)?|\.\d+))(?P<suffix>.*)")

_BARE = {"share": 0.01, "bytes": 1e9}
"""Factor for a number without a unit, in columns whose header allows more than one unit."""

_SUFFIXES: Mapping[str, Mapping[str, float]] = {
    "share": {"%": 0.01},
    "bytes": {"gb": 1e9, "mb": 1e6, "kb": 1e3, "tb": 1e12, "gib": 2.0**30, "mib": 2.0**20, "b": 1.0},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0},
    "per_s": {"k": 1e3, "m": 1e6, "/s": 1.0},
    "dollars": {"$": 1.0},
    "kwh": {"kwh": 1.0, "wh": 1e-3},
    "kg": {"kg": 1.0, "g": 1e-3},
    "count": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition on one column that a table row must meet to be shown."""

    column: Column
    sign: str
    values: tuple[int | float | str, ...]
    """Values in SI units. If there are several, a row matches if it has any of them."""
    said: str
    """Condition as the user wrote it, without blanks."""

    def __call__(self, row: TableRow) -> bool:
        """Return True if the row meets the condition.

        A row without a value in the column is never more, less or equal.
        """
        value = self.column.value(row)
        if self.sign == "!=":
            return all(value != each for each in self.values)
        return value is not None and any(_COMPARISONS[self.sign](value, each) for each in self.values)


def conditions_said(text: str) -> tuple[Condition, ...]:
    """Return the conditions that a text such as ``tp=4 mfu>40`` contains; a row must meet all of them.

    A condition is the name of a column, a comparison (``= != > < >= <=``) and a value. A number without a unit has the
    unit that the head of the column shows (MFU in percent, memory in GB). Several values with commas between them may
    follow ``=`` or ``!=``. A word from the short text of a layout is a condition too: ``tp4 recompute-full``. An empty
    text has no conditions.

    Raises:
        InvalidInput: A condition is not valid (the error names the nearest valid one), or there are too many
            conditions.
    """
    said = text
    for other, sign in _ALSO.items():
        said = said.replace(other, sign)
    words = _AROUND.sub(r"\1", said).split()
    if len(words) > _MOST:
        raise InvalidInput(FIELD, len(words), f"must be {_MOST} conditions or fewer", _MOST)
    return tuple(condition for word in words for condition in _read(word))


def _read(word: str) -> Iterator[Condition]:
    found = _CONDITION.fullmatch(word)
    if found is None:
        yield from _of_layout_word(word)
        return
    column = column_named(found["name"], FIELD)
    if column.unit == "text":
        raise InvalidInput(
            FIELD,
            word,
            f"must be a word of a layout, such as tp4, because values of the column {column.name} cannot be compared",
        )
    sign, value_of = found["sign"], _word if column.unit == "word" else _number
    values = tuple(value_of(column, text, word) for text in found["value"].split(",") if text)
    _check(column, sign, values, word)
    yield Condition(column=column, sign=sign, values=values, said=word)


def _check(column: Column, sign: str, values: tuple[object, ...], word: str) -> None:
    """Check that the column can be compared with this sign and these values.

    Raises:
        InvalidInput: It cannot. The error names the nearest legal condition.
    """
    if not values:
        raise InvalidInput(FIELD, word, "must have a value after the sign, for example tp=4")
    if sign not in ("=", "!="):
        if column.unit == "word":
            raise InvalidInput(
                FIELD, word, f"must use = or !=, because the values of {column.name} are words", word.replace(sign, "=")
            )
        if len(values) > 1:
            raise InvalidInput(FIELD, word, "may have several values only after = or !=", word.split(",", 1)[0])
    elif column.is_figure:
        rule = f"must use <, <=, > or >=, because {column.name} is a measured number that is never equal to another"
        raise InvalidInput(FIELD, word, rule, word.replace(sign, ">=", 1))


def _word(column: Column, text: str, word: str) -> str:
    for known in column.words:
        if _plain(known) == _plain(text):
            return known
    near = get_close_matches(_plain(text), column.words, 1, cutoff=0.0)
    raise InvalidInput(
        FIELD, word, f"must use one of these values: {', '.join(column.words)}", f"{column.name}={near[0]}"
    )


def _plain(text: str) -> str:
    plain = text.lower().replace("_", "-").replace(" ", "-")
    return {"yes": "on", "true": "on", "no": "off", "false": "off"}.get(plain, plain)


def _number(column: Column, text: str, word: str) -> float:
    found = _NUMBER.fullmatch(text)
    suffixes = _SUFFIXES[column.unit]
    suffix = "" if found is None else found["suffix"].lower()
    if found is None or (suffix and suffix not in suffixes):
        units = f", with {' or '.join(suffixes)} or no unit behind it" if suffixes else ""
        rule = f"must compare {column.name} with a number{units}, for example {column.name}>1"
        raise InvalidInput(FIELD, word, rule)
    return float(found["digits"]) * (suffixes[suffix] if suffix else _BARE.get(column.unit, 1.0))


def _of_layout_word(word: str) -> Iterator[Condition]:
    """Yield the conditions for the choices that a word of a layout's name sets."""
    try:
        fields = parse_words(word)
    except InvalidInput:
        names = ", ".join(list(COLUMNS)[:7])
        near = COLUMNS[get_close_matches(word.lower(), COLUMNS, 1, cutoff=0.0)[0]]
        example = f"{near.name}={near.words[0]}" if near.words else f"{near.name}>1"
        rule = (
            f"is not a condition: write a column ({names} ...), one of {' '.join(_COMPARISONS)}, and a value, "
            f"for example {example}"
        )
        raise InvalidInput(FIELD, word, rule) from None
    for name, value in fields.items():
        said = value if isinstance(value, int) and not isinstance(value, bool) else _SAID.get(value, value)
        yield from _read(f"{_COLUMN_OF.get(name, name)}={str(said).replace(' ', '-')}")


_COLUMN_OF = {
    "data_parallel_replicate_degree": "dp",
    "data_parallel_shard_degree": "dp",
    "shard_level": "sharding",
}
_SAID: Mapping[object, str] = {
    "optimizer": "ZeRO-1",
    "gradients": "ZeRO-2",
    "parameters": "FSDP",
    True: "on",
    False: "off",
}


# ---------------------------------------------------------------- the query
@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery:
    """A query that selects rows of a sweep's table by conditions, their order, and the columns to show."""

    conditions: tuple[Condition, ...] = ()
    """Conditions, all of which a row must meet."""
    sort: Column = COLUMNS["rank"]
    """Column that orders the rows. Rows with equal values, and rows without a value, keep their order."""
    is_descending: bool = False
    """True if the order is from the highest value down."""
    columns: tuple[Column, ...] = USUAL
    """Columns in the order in which they are shown."""

    @classmethod
    def read(cls, where: str = "", sort: str = "", columns: str = "") -> Self:
        """Return the query that the parameters of a URL describe: conditions on rows, sort order and columns.

        Args:
            where: Conditions such as ``tp=4 pp>1``; see ``conditions_said``.
            sort: Name of the column to sort by, with ``-`` before it to begin with the highest; empty: the rank.
            columns: Names of columns with commas between them; empty: the usual columns.

        Raises:
            InvalidInput: A parameter is not valid. The error names the nearest valid text.
        """
        return cls(
            conditions=conditions_said(where),
            sort=column_named(sort.removeprefix("-") or "rank", "sort"),
            is_descending=sort.startswith("-"),
            columns=columns_named(columns),
        )

    def rows(self, rows: Iterable[TableRow]) -> tuple[TableRow, ...]:
        """Return the rows that meet every condition, sorted; rows without a value in the sort column come last."""
        kept = [row for row in rows if all(condition(row) for condition in self.conditions)]
        known = [row for row in kept if self.sort.value(row) is not None]
        unknown = [row for row in kept if self.sort.value(row) is None]
        return (*sorted(known, key=self.sort.key, reverse=self.is_descending), *unknown)


# ---------------------------------------------------------------- what a table says in JSON
@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """The description of one column of a sweep's table: its name, meaning and unit."""

    name: str
    """Name of the column in rows and in queries."""
    label: str
    """Label of the column in the header of a page's table."""
    meaning: str
    """Meaning of the column, as a sentence without a full stop."""
    unit: Unit
    """Unit of the values; shares are 0..1, prices in US dollars."""
    words: tuple[str, ...]
    """Words of a choice, the simplest setting first; empty for other columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableItem:
    """One row of a sweep's table in an answer: a layout with its values in the selected columns."""

    label: str
    """Short text for the layout."""
    source: Literal["measured", "estimated", "simulated", "predicted"]
    """Source of the row's figures: a run of the layout, runs on fewer ranks, a simulation, or a prediction."""
    trial_id: str | None
    """Id of the trial; null if the layout was not tried."""
    tied_with_best: bool | None
    """True if the layout's value does not differ from that of the first layout by more than chance explains; null
    without a rank."""
    values: dict[str, int | float | str | None]
    """Values of the selected columns by name. A value with an interval is followed by the interval's half-width,
    ``NAME_error``: 95 % for measured values, 80 % for estimated or predicted ones. Null if a value is not known."""

    @classmethod
    def of(cls, row: TableRow, columns: Sequence[Column]) -> Self:
        """Return a table row as it appears in an answer, with its values in the given columns."""
        return cls(
            label=str(row.layout),
            source=row.source,
            trial_id=None if row.trial is None else row.trial.id,
            tied_with_best=None if row.standing is None else row.standing.tied_with_best,
            values={name: value(row) for name, value in cells_of(columns)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSlice:
    """One page of a sweep's table: rows that meet a query, with the number of such rows on all pages."""

    columns: tuple[TableColumn, ...]
    items: tuple[TableItem, ...]
    total: int
    """Number of rows that meet the conditions, on all pages."""
    num_rows: int
    """Number of rows without any condition."""
    limit: int
    offset: int

    @classmethod
    def of(cls, rows: Sequence[TableRow], query: TableQuery, *, limit: int, offset: int) -> Self:
        """Return one page of the rows of a sweep's table that meet a query, in the query's order.

        Args:
            rows: All rows of the table.
            query: Conditions, order and columns.
            limit: Maximum number of rows on the page.
            offset: Number of matching rows before the page.
        """
        met = query.rows(rows)
        shown = met[offset : offset + limit]
        return cls(
            columns=tuple(extended(TableColumn, column) for column in query.columns),
            items=tuple(TableItem.of(row, query.columns) for row in shown),
            total=len(met),
            num_rows=len(rows),
            limit=limit,
            offset=offset,
        )
