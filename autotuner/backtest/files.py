"""CSV files of measurements, as their rows."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path

from autotuner.backtest.cells import Row
from autotuner.errors import InvalidInput

__all__ = ["columns_and_rows"]


def columns_and_rows(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    """The names of the columns, and every row below them.

    Raises:
        InvalidInput: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("table", str(path), f"cannot be read ({error})") from error
    table = re.sub(r"\A(\s*(# .*)?\r?\n)+", "", text)  # what is told above the header
    reader = csv.DictReader(StringIO(table, newline=""), restval="", skipinitialspace=True)
    try:
        rows: list[Row] = list(reader)
    except csv.Error as error:
        raise InvalidInput("table", str(path), f"is no CSV at line {reader.line_num} ({error})") from error
    return tuple(reader.fieldnames or ()), rows
