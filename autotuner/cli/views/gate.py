"""A gate on a terminal: the outcome, its numbers, what else differs."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.search.upkeep.gate_reports.report import GateReport, outcome_in_words

__all__ = ["gate_view"]


def gate_view(report: GateReport) -> RenderableType:
    """The outcome first."""
    style = "bold green" if report.is_passed else "bold red"
    head = Text.assemble((f"{outcome_in_words(report.outcome)}", style), f": {report.detail}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in report.facts:
        table.add_row(Text(name, style="dim"), Text(value), style="")
    notes = [f"{line[0].upper()}{line[1:]}." for line in report.notes]
    parts = [*(Text(change) for change in report.changes), *(Text(note, style="dim") for note in notes)]
    return Group(Text(report.name, style="bold"), head, table, *parts)
