"""What came of a sweep: the answer, what mattered, what failed, and its trials as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from autotuner.core.documents import extended
from autotuner.core.sweep import Prospects
from autotuner.search.results.accuracy import Accuracy
from autotuner.search.results.failures import FailureGroup
from autotuner.search.results.sensitivity import Choices, Grid
from autotuner.search.results.sweep_answer import Answer
from autotuner.search.results.trial_query import TableQuery
from autotuner.search.results.trial_table import Column, TableRow, Unit, cells_of
from autotuner.store.options import Page

# What came of a sweep: the answer, what mattered, what failed, how right predictions were.

SweepAccuracy = Accuracy
"""As the search tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """What to train with, by a sweep."""

    answer: Answer | None
    """Null before a trial has a rank."""
    prospects: Prospects | None
    """What its search expects of going on; null before its first trial was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChoices:
    """What mattered in a sweep."""

    choices: Choices
    """How much each choice explains, and what it did in otherwise equal pairs."""
    grid: Grid
    """The best of every pair of values of two choices: of those that were asked for, else of those that matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFailures:
    """Trials of a sweep that died, grouped by cause, the largest group first."""

    items: tuple[FailureGroup, ...]


# The trials of a sweep as a table that callers sort, filter and choose columns of.


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One thing that a table says of every row."""

    name: str
    """Under which rows hold it, and by which it is asked for."""
    label: str
    """In the head of a page's table."""
    meaning: str
    """A sentence without a full stop."""
    unit: Unit
    """What it is counted in; shares are 0..1, prices in US dollars."""
    words: tuple[str, ...]
    """Every value of a choice, the plainest first; empty of anything else."""

    @classmethod
    def of(cls, column: Column) -> Self:
        """The column as it is told."""
        return extended(cls, column)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableItem:
    """A layout of a sweep."""

    label: str
    """The layout in short."""
    source: Literal["measured", "estimated", "simulated", "predicted"]
    """What its figures are: of a run of the layout, of runs on fewer ranks, of no run, or predicted alone."""
    trial_id: str | None
    """Null where no trial tried it."""
    tied_with_best: bool | None
    """It cannot be told from the first of the ranking; null where it has no rank."""
    values: dict[str, int | float | str | None]
    """The chosen columns by name, each followed by half the width of its interval, ``NAME_error``, where it has one: 95
    % of what was measured, 80 % of what was estimated or predicted. Null where nothing is known."""

    @classmethod
    def of(cls, row: TableRow, columns: Sequence[Column]) -> Self:
        """The row with those columns."""
        return cls(
            label=str(row.layout),
            source=row.source,
            trial_id=None if row.trial is None else row.trial.id,
            tied_with_best=None if row.standing is None else row.standing.tied_with_best,
            values={name: value(row) for name, value in cells_of(columns)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """Rows of a table, as they were asked for."""

    columns: tuple[TableColumn, ...]
    items: tuple[TableItem, ...]
    total: int
    """Rows that meet the conditions, on all pages."""
    num_rows: int
    """Rows without any condition."""
    limit: int
    offset: int

    @classmethod
    def of(cls, rows: Sequence[TableRow], query: TableQuery, page: Page) -> Self:
        """The rows of one page of what the query asks for."""
        met = query.rows(rows)
        shown = met[page.offset : page.offset + page.limit]
        return cls(
            columns=tuple(TableColumn.of(column) for column in query.columns),
            items=tuple(TableItem.of(row, query.columns) for row in shown),
            total=len(met),
            num_rows=len(rows),
            limit=page.limit,
            offset=page.offset,
        )
