"""Jobs of phases as tables: the layout of each phase, and whole courses side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.core.units import format_duration, format_long_duration
from autotuner.report.terminal import LayoutRow, LayoutTable, plain_table
from autotuner.search.text.sentences import expected_seconds, in_sentences, percent


def phases_view(answer: Mapping[str, Any], *, title: str) -> RenderableType:
    """The layout of each phase, whole ways through all of them, and why."""
    parts: list[RenderableType] = [Text(title, style="bold"), _phases(answer)]
    parts += [Text("ways through all phases", style="bold"), _courses(answer)]
    parts += [Text(in_sentences([sentence])) for sentence in answer["sentences"]]
    parts += [Text(in_sentences(answer["caveats"]), style="dim")]
    return Group(*parts)


def _phases(answer: Mapping[str, Any]) -> LayoutTable:
    """A row for each phase of the best course."""
    heads = ("steps", "step", "takes", "switch into it")
    rows = [_phase(choice) for choice in answer["best"]["choices"]]
    return LayoutTable(keys=("phase",), heads=heads, rows=rows)


def _phase(choice: Mapping[str, Any]) -> LayoutRow:
    cells = (
        f"{choice['num_steps']:,.0f}",
        expected_seconds(choice["step_s"], choice["relative_error"]),
        format_long_duration(choice["expected_s"]),
        format_duration(choice["switch_s"]) if choice["switch_s"] else "stays",
    )
    return LayoutRow(keys=(choice["phase"],), layout=choice["label"], cells=cells)


def _courses(answer: Mapping[str, Any]) -> Table:
    """The best course, each phase in its own fastest layout, and those that stay in one."""
    table = plain_table("way", "switches", "takes", "longer by")
    rows = [("best", answer["best"]), ("each phase its own fastest", answer["greedy"])]
    rows += [(f"stay in {one['choices'][0]['label']}", one) for one in answer["statics"]]
    best_s = answer["best"]["total_s"]
    for name, course in rows:
        more_s = course["total_s"] - best_s
        more = f"{format_long_duration(more_s)} ({percent(more_s / best_s)})" if more_s > 0 else ""
        table.add_row(name, str(course["num_switches"]), format_long_duration(course["total_s"]), more)
    return table
