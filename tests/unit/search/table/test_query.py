from __future__ import annotations

import csv
import io

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.search.table.columns import COLUMNS, USUAL
from autotuner.search.table.query import TableQuery
from autotuner.search.table.written import as_csv, names_of, values_of
from tests.unit.search.table.rows import rows, trial, untried

ROWS = rows(
    trial(0, "tp4 mb1 recompute-selective", mfu=0.44, tokens_per_s=10.0, peak_bytes=()),
    trial(1, "tp8 mb2 recompute-full", mfu=0.40, tokens_per_s=30.0, peak_bytes=(5,)),
    trial(2, "tp2 mb4", mfu=0.30, tokens_per_s=20.0, peak_bytes=(7,)),
)


def order(sort: str) -> list[int | None]:
    """Numbers of the trials as sorted by that column."""
    return [row.trial.number if row.trial else None for row in TableQuery.read(sort=sort).rows(reversed(ROWS))]


@pytest.mark.parametrize(
    ("sort", "numbers"),
    [
        ("", [0, 1, 2]),
        ("-rank", [2, 1, 0]),
        ("tp", [2, 0, 1]),
        ("-tokens_per_s", [1, 2, 0]),
        ("recompute", [1, 0, 2]),
        ("memory", [1, 2, 0]),
        ("-memory", [2, 1, 0]),
    ],
)
def test_rows_are_sorted_by_a_column_and_those_without_a_value_come_last(sort: str, numbers: list[int]) -> None:
    assert order(sort) == numbers


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_can_be_sorted_by_every_column(name: str) -> None:
    every = (*ROWS, untried())
    assert len(TableQuery.read(sort=name).rows(every)) == len(TableQuery.read(sort=f"-{name}").rows(every)) == 4


def test_columns_are_those_that_are_named_in_that_order() -> None:
    assert [column.name for column in TableQuery.read(columns="mfu,TP,memory,tp").columns] == [
        "mfu",
        "tp",
        "peak_bytes",
    ]
    assert TableQuery.read(columns=" , ").columns == USUAL


@pytest.mark.parametrize("field", ["sort", "columns"])
def test_a_column_that_there_is_not_is_refused_with_the_nearest(field: str) -> None:
    with pytest.raises(InvalidInput, match="nearest legal value: mfu") as refused:
        TableQuery.read(**{field: "mfuu"})
    assert refused.value.field == field


def test_a_figure_has_its_error_beside_it() -> None:
    (row,) = rows(trial(0, "tp2 mb1", mfu=0.4, step_time_s=1.0, step_time_interval_s=0.05))
    columns = TableQuery.read(columns="mfu,tp").columns
    assert dict(zip(names_of(columns), values_of(row, columns), strict=True)) == {
        "mfu": 0.4,
        "mfu_error": pytest.approx(0.02),
        "tp": 2,
    }


def test_a_table_as_csv_is_read_back_whole() -> None:
    columns = TableQuery.read(columns="rank,tp,mfu,memory,recompute").columns
    written = list(csv.DictReader(io.StringIO(as_csv((*ROWS, untried()), columns))))
    assert [line["recompute"] for line in written] == ["selective", "full", "none", "none"]
    assert float(written[1]["mfu"]) == 0.40
    assert (written[0]["peak_bytes"], written[1]["peak_bytes"], written[3]["rank"]) == ("", "5.0", "")
    assert written[2]["layout"] == str(ROWS[2].layout)
