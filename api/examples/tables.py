"""Examples of a sweep as a table."""

from __future__ import annotations

from api.examples.sweeps import sweep_detail
from api.examples.trials import trial
from api.schemas import TablePage
from autotuner.ports import Page
from autotuner.search.table.query import TableQuery
from autotuner.search.table.row import TableRow, ranked_rows
from autotuner.search.table.written import as_csv

_QUERY = TableQuery.read("mfu>40", "-mfu", "rank,tp,mfu,predicted,memory,recompute")


def table_page() -> TablePage:
    """The best trial as a row."""
    return TablePage.of(_rows(), _QUERY, Page())


def table_csv() -> str:
    """The same as CSV."""
    return as_csv(_QUERY.rows(_rows()), _QUERY.columns)


def _rows() -> tuple[TableRow, ...]:
    return ranked_rows(sweep_detail().request, [trial()])
