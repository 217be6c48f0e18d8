"""Layouts of arXiv 2205.05198: the runs of its table 5 with the switches of its other tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from autotuner.backtest.cells import Row
from autotuner.backtest.table import Run, read_row
from autotuner.core.choices import Recompute
from autotuner.core.columns import LayoutColumns
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from tests.published.tables import rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published row and the layout it is about."""

    row: Row
    job: Job
    layout: Layout

    @property
    def columns(self) -> LayoutColumns:
        """The layout, as a single row."""
        return LayoutColumns.from_layouts([self.layout])

    @property
    def name(self) -> str:
        """For the test's identity."""
        return f"{self.row['model']}, {self.layout}"


def cases(table: str) -> Iterator[Case]:
    """The rows of a table with columns ``model``, ``seq_parallel`` and ``act_ckpt``."""
    for row in rows(table):
        run = _runs()[row["model"]]
        layout = replace(
            run.layout, sequence_parallel=row["seq_parallel"] == "1", recompute=Recompute.from_label(row["act_ckpt"])
        )
        yield Case(row=row, job=run.job, layout=layout)


@cache
def _runs() -> dict[str, Run]:
    """By model; of one model all have the same shapes, batch and degrees."""
    table = rows("megatron_lm_tables")
    return {row["model"]: read_row(row) for row in table if row["source"].startswith("arXiv:2205.05198 Table 5")}
