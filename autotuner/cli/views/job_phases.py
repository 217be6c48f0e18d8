"""Jobs of phases as tables: the layout of each phase, and whole courses side by side."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from autotuner.search.text.sentences import percent
from autotuner.units import format_duration, format_long_duration, format_seconds

__all__ = ["courses_table", "phases_table"]


def phases_table(answer: dict[str, Any], *, title: str) -> Table:
    """A row for each phase of the best course."""
    table = Table(title=title, title_justify="left")
    for name in ("phase", "layout"):
        table.add_column(name, overflow="fold")
    for name in ("steps", "step", "±", "takes", "switch into it"):
        table.add_column(name, justify="right", no_wrap=True)
    for choice in answer["best"]["choices"]:
        table.add_row(
            choice["phase"],
            choice["label"],
            f"{choice['num_steps']:,.0f}",
            format_seconds(choice["step_s"]),
            percent(choice["relative_error"]),
            format_long_duration(choice["expected_s"]),
            format_duration(choice["switch_s"]) if choice["switch_s"] else "stays",
        )
    return table


def courses_table(answer: dict[str, Any]) -> Table:
    """The best course, each phase in its own fastest layout, and those that stay in one."""
    table = Table(title="Ways through all phases", title_justify="left")
    table.add_column("way", overflow="fold")
    for name in ("switches", "takes", "more"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [("best", answer["best"]), ("each phase its own fastest", answer["greedy"])]
    rows += [(f"stay in {one['choices'][0]['label']}", one) for one in answer["statics"]]
    best_s = answer["best"]["total_s"]
    for name, course in rows:
        more_s = course["total_s"] - best_s
        more = "" if course is answer["best"] else f"+{format_long_duration(more_s)} ({percent(more_s / best_s)})"
        table.add_row(name, str(course["num_switches"]), format_long_duration(course["total_s"]), more)
    return table
