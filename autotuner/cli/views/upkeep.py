"""MFU gates, as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.core.units import format_rate
from autotuner.report.terminal import plain_table
from autotuner.search.text.sentences import in_sentences
from autotuner.search.upkeep.gate_reports import GateReport, outcome_in_words


def gate_view(report: GateReport) -> RenderableType:
    """The outcome first."""
    style = "bold green" if report.is_passed else "bold red"
    head = Text.assemble((f"{outcome_in_words(report.outcome)}", style), f": {report.detail}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in report.facts:
        table.add_row(Text(name, style="dim"), Text(value), style="")
    notes = [in_sentences([line]) for line in report.notes]
    parts = [*(Text(change) for change in report.changes), *(Text(note, style="dim") for note in notes)]
    return Group(Text(report.name, style="bold"), head, table, *parts)


def baselines_view(items: Sequence[Mapping[str, Any]], *, is_removed: bool) -> RenderableType:
    """A row for each name and job."""
    if not items:
        return Text("no baseline is stored; `autotuner gate --set-baseline` stores one")
    table = plain_table("name", "model", "cluster", "MFU", "rate", "runs", "since", "layout")
    for item in items:
        since = f"{datetime.fromtimestamp(item['at'], UTC):%Y-%m-%d %H:%M}"
        reached = (f"{100 * item['mfu']:.1f} %", format_rate(item["tokens_per_s"], "token/s"), str(item["num_runs"]))
        table.add_row(item["name"], item["model"], item["cluster"], *reached, since, item["label"])
    return Group(Text("forgotten"), table) if is_removed else table
