"""The trials of a sweep as a table: sorted, filtered, with the columns that somebody wants, as JSON and as CSV."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from api.dependencies import AppOf, SweepOf
from api.openapi import problems
from api.schemas import TablePage
from autotuner.core.documents import MAX_INTEGER, Document
from autotuner.core.sweep import Sweep
from autotuner.ports import Page
from autotuner.search.table.query import TableQuery
from autotuner.search.table.row import TableRow
from autotuner.search.table.written import as_csv
from autotuner.service.build import App

router = APIRouter(tags=["sweeps"])

_MOST_ROWS = 10_000

_LONGEST = 2000

RowsOf = Literal["ranked", "untried"]
"""Which rows a table has: trials with a rank, or the best layouts by prediction that no trial tried."""


async def _query(
    where: Annotated[
        str,
        Query(
            max_length=_LONGEST,
            description="Conditions, all of which a row meets: a column, one of `= != > < >= <=`, and a value. MFU is "
            "in percent and memory in GB, unless a number says another unit; words of a layout (`tp4`) do, too.",
            examples=["tp=4 pp>1 recompute=none mfu>40"],
        ),
    ] = "",
    sort: Annotated[
        str,
        Query(max_length=100, description="A column; `-` before it: the highest first.", examples=["-tokens_per_s"]),
    ] = "",
    columns: Annotated[
        str,
        Query(max_length=_LONGEST, description="Columns with commas between them; else the usual ones."),
    ] = "",
) -> TableQuery:
    return TableQuery.read(where, sort, columns)


TableQueryOf = Annotated[TableQuery, Depends(_query)]

_Rows = Annotated[
    RowsOf,
    Query(
        description="`ranked`: trials that have a rank. `untried`: of the 1,000 best layouts by prediction those "
        "that no trial tried."
    ),
]


def table_rows(app: App, sweep: Sweep, rows: RowsOf) -> tuple[TableRow, ...]:
    """All rows of a sweep's table, the best first."""
    trials = app.kept_trials.of(sweep.id)
    if rows == "untried":
        return app.sweep_tables.untried(app.informed(sweep), trials)
    return app.sweep_tables.ranked(sweep, trials)


@router.get("/sweeps/{sweep_id}/table", responses=problems(404, 422))
def read_table(
    app: AppOf,
    sweep: SweepOf,
    query: TableQueryOf,
    rows: _Rows = "ranked",
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS, description="Rows on the page.")] = 50,
    offset: Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Rows to skip.")] = 0,
) -> Document[TablePage]:
    """Read a sweep's trials as a table: the rows, the order and the columns that are asked for.

    Every column has a name by which it is chosen, sorted by and compared with; the answer tells what each means.
    """
    return TablePage.of(table_rows(app, sweep, rows), query, Page(limit=limit, offset=offset))


@router.get(
    "/sweeps/{sweep_id}/table.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}}, **problems(404, 422)},
)
def read_table_csv(app: AppOf, sweep: SweepOf, query: TableQueryOf, rows: _Rows = "ranked") -> Response:
    """Read the same table as CSV, every row that meets the conditions: SI units, the layout in words last."""
    written = as_csv(query.rows(table_rows(app, sweep, rows)), query.columns)
    headers = {"Content-Disposition": f'attachment; filename="{sweep.id}.csv"'}
    return Response(written, media_type="text/csv", headers=headers)
