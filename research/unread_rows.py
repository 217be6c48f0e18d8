"""How many rows of published tables of runs the reader leaves out, and why.

``python -m research.unread_rows [TABLE.csv ...]`` prints them table by table, those of tests/published by default.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotuner.backtest.table import Table, read_table

PUBLISHED = Path(__file__).resolve().parent.parent / "tests" / "published"

OTHER_RUNS = ("fine-tuning by LoRA", "run failed", "the run ended as", "no shapes, and")
"""Beginnings of reasons that no reader can mend: not training of a transformer, or not ended.

Tables without shapes are of hybrid models, which their notes say.
"""


def tables_of_runs() -> list[Path]:
    """The published tables whose rows are whole runs."""
    paths = sorted(PUBLISHED.glob("*.csv"))
    return [path for path in paths if "zero_or_fsdp" in path.read_text(encoding="utf-8").partition("\n")[0]]


def left_out(table: Table) -> Counter[str]:
    """Rows by reason, of all sheets and of none."""
    return sum((Counter(sheet.left_out) for sheet in table.sheets), Counter(table.left_out))


def lines(paths: Sequence[Path]) -> Iterator[str]:
    """One line per table and reason, and the share of all rows."""
    total: Counter[str] = Counter()
    for path in paths:
        table = read_table(path)
        reasons, num_read = left_out(table), sum(len(sheet) for sheet in table.sheets)
        yield f"{path.stem}: {num_read} rows read, {reasons.total()} left out"
        yield from (f"  {count:4d}  {reason}; {table.examples[reason]}" for reason, count in reasons.most_common())
        others = sum(count for reason, count in reasons.items() if reason.startswith(OTHER_RUNS))
        total += Counter(rows=num_read + reasons.total(), unread=reasons.total() - others)
    yield f"of all {total['rows']} rows {total['unread'] / max(1, total['rows']):.2%} cannot be read"


if __name__ == "__main__":
    print("\n".join(lines([Path(path) for path in sys.argv[1:]] or tables_of_runs())))  # noqa: T201
