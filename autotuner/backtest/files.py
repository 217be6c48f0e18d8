"""CSV files of measurements, as their rows."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path

from autotuner.backtest.cells import Row
from autotuner.core.errors import InvalidInput

_MAX_CHARACTERS = 20_000_000
"""Some ten thousand rows with long notes."""


def columns_and_rows(path: Path) -> tuple[tuple[str, ...], list[Row]]:
    """The names of the columns, and every row below them.

    Raises:
        InvalidInput: The file cannot be read, or is too long.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("table", str(path), f"cannot be read ({error})") from error
    if len(text) > _MAX_CHARACTERS:
        raise InvalidInput("table", str(path), f"must have {_MAX_CHARACTERS:,} characters or fewer")
    table = re.sub(r"\A(\s*(# .*)?\r?\n)+", "", text)  # what is told above the header
    reader = csv.DictReader(StringIO(table, newline=""), restval="", skipinitialspace=True)
    try:
        rows: list[Row] = list(reader)
    except csv.Error as error:
        raise InvalidInput("table", str(path), f"is no CSV at line {reader.line_num} ({error})") from error
    return tuple(reader.fieldnames or ()), rows
