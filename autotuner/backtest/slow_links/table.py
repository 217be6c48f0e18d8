"""Tables of iteration times under slow links, known by their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotuner.backtest.cells import UnusableRow
from autotuner.backtest.files import columns_and_rows
from autotuner.backtest.slow_links.iteration import REQUIRED_COLUMNS, Iteration, read_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationTable:
    """Iterations in the order of their rows.

    Attributes:
        left_out: Rows that cannot be judged: reason to count.
        examples: The first of them by reason, in words.
    """

    iterations: tuple[Iteration, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


def read_iteration_table(path: Path) -> IterationTable | None:
    """The iterations of a CSV file; None where its columns are those of no such table.

    Raises:
        InvalidInput: The file cannot be read.
    """
    columns, rows = columns_and_rows(path)
    if not set(REQUIRED_COLUMNS) <= set(columns):
        return None
    iterations: list[Iteration] = []
    left_out: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        try:
            iterations.append(read_iteration(row))
        except UnusableRow as why:
            left_out[why.reason] += 1
            examples.setdefault(why.reason, f"row {number}: {why.detail or row['model']}")
    return IterationTable(iterations=tuple(iterations), left_out=left_out, examples=examples)
