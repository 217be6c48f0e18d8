"""A table of measured runs, sorted into sheets whose rows differ in the layout only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autotuner.backtest.cells import Row, UnusableRow
from autotuner.backtest.files import columns_and_rows
from autotuner.backtest.row import REQUIRED_COLUMNS, Run, read_row
from autotuner.core.columns import Booleans, Floats, LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job

_LONGEST = 500
"""Characters that are told of the columns of a file that is no table of runs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sheet:
    """Runs of one source, model, cluster, sequence length and batch.

    Attributes:
        name: These in words, and a number where two sheets would be called the same; unique in a table.
        layouts: One row per run.
        step_time_s: NaN where the run ran out of memory.
        left_out: Rows of this sheet that cannot be judged: reason to count.
        source: The text of the table's ``source`` column.
    """

    name: str
    job: Job
    layouts: LayoutColumns
    step_time_s: Floats
    left_out: Mapping[str, int] = field(default_factory=dict)
    source: str = ""

    def __len__(self) -> int:
        return len(self.step_time_s)

    @property
    def out_of_memory(self) -> Booleans:
        """Which runs did."""
        return np.isnan(self.step_time_s)


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """Sheets in the order of their first rows.

    Attributes:
        left_out: Rows of no sheet, because none of that sheet's can be judged: reason to count.
        examples: The first row that was left out, of any sheet, in words: by reason.
    """

    sheets: tuple[Sheet, ...]
    left_out: Mapping[str, int]
    examples: Mapping[str, str] = field(default_factory=dict)


def read_table(path: Path) -> Table:
    """The runs of a CSV file; rows that cannot be judged are counted by reason.

    Raises:
        InvalidInput: The file cannot be read, or lacks a column that every row needs.
    """
    runs: dict[_Key, list[Run]] = {}
    left_out: dict[_Key, Counter[str]] = {}
    examples: dict[str, str] = {}
    for number, row in enumerate(_rows(path), 1):
        key = tuple((row.get(column) or "").strip() for column in _KEY_COLUMNS)
        found, reasons = runs.setdefault(key, []), left_out.setdefault(key, Counter())
        try:
            found.append(read_row(row))
        except UnusableRow as why:
            reasons[why.reason] += 1
            examples.setdefault(why.reason, _example(number, row, why))
    lost: Counter[str] = sum((left_out[key] for key, found in runs.items() if not found), Counter())
    return Table(sheets=tuple(_sheets(runs, left_out)), left_out=dict(lost), examples=examples)


def _example(number: int, row: Mapping[str, str], why: UnusableRow) -> str:
    """Which row it is, counted from the first below the header, and what is particular to it."""
    run = f"row {number}: {row['model']}, {row['num_gpus']} x {row['gpu']}"
    return f"{run}: {why.detail}" if why.detail else run


_Key = tuple[str, ...]
_KEY_COLUMNS = ("source", "model", "num_gpus", "gpu", "seq_len", "global_batch")
"""What rows of one sheet have in common, with what follows from it: their job."""


def _sheets(runs: Mapping[_Key, list[Run]], left_out: Mapping[_Key, Mapping[str, int]]) -> Iterator[Sheet]:
    """One sheet per key, or several where its rows are about different jobs after all; no two of one name."""
    names: Counter[str] = Counter()
    for key, found in runs.items():
        jobs: dict[Job, list[Run]] = defaultdict(list)
        for run in found:
            jobs[run.job].append(run)
        for number, (job, same) in enumerate(jobs.items()):
            name = _name(key)
            names[name] += 1
            seconds = np.array([np.nan if run.step_time_s is None else run.step_time_s for run in same])
            yield Sheet(
                name=name if names[name] == 1 else f"{name} ({names[name]})",
                job=job,
                layouts=LayoutColumns.from_layouts(run.layout for run in same),
                step_time_s=seconds,
                left_out=dict(left_out[key]) if number == 0 else {},
                source=key[0],
            )


def _name(key: _Key) -> str:
    source, model, num_gpus, gpu, seq_len, batch = key
    words = f"{model}, {num_gpus} x {gpu}, {seq_len} tokens, batch {batch or '?'}"
    return f"{_short(source)}: {words}" if source else words


def _short(source: str) -> str:
    """A long citation by its beginning and its end, where the file is named."""
    return source if len(source) <= 60 else f"{source[:28]}...{source[-29:]}"


def _rows(path: Path) -> Iterable[Row]:
    columns, rows = columns_and_rows(path)
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        rule = f"lacks the column(s) {', '.join(missing)}; it has {', '.join(columns or ('none',))[:_LONGEST]}"
        raise InvalidInput("table", str(path), rule)
    return rows
