"""The published tables, read and judged once for all tests."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

from autotuner.backtests.cells import Row
from autotuner.backtests.measured_table import Sheet, read_table
from autotuner.backtests.report import Judgement, Rows, judge

FOLDER = Path(__file__).parent


def rows(table: str) -> list[Row]:
    """The rows of a table as texts, less lines of comments."""
    lines = (FOLDER / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


read = cache(read_table)


@cache
def sheets(table: str) -> tuple[tuple[Sheet, Judgement], ...]:
    """The sheets of a table, and what they say of the catalog's constants; nothing is searched."""
    return tuple((sheet, judge(sheet, num_seeds=0, num_given=0)) for sheet in read(FOLDER / f"{table}.csv").sheets)


def judged(table: str, keep: Callable[[Sheet], bool] = lambda _: True) -> Rows:
    """All judged rows of the sheets kept."""
    return Rows.joined([judgement.rows for sheet, judgement in sheets(table) if keep(sheet)])
