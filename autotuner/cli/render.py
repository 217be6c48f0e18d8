"""Tables for a terminal of 80 columns. Every number's column says whether it was predicted or measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotuner.units import format_bytes, format_seconds

__all__ = ["catalog_table", "prediction_table", "ranking_table", "sweep_view"]

_PARTS = {
    "comp": "compute_s",
    "recomp": "recompute_s",
    "tp": "tensor_communication_s",
    "cp": "context_communication_s",
    "ep": "expert_communication_s",
    "pp": "pipeline_communication_s",
    "dp": "data_communication_s",
    "bubble": "bubble_s",
    "optim": "optimizer_s",
}
"""Column heads of the parts of a step: computation, exposed communication by axis, idle time, optimizer."""

_WORDS = ("layout", "why", "state", "name", "source")
"""Columns of words; all others hold numbers and are set flush right."""


def prediction_table(items: Sequence[dict[str, Any]], *, title: str) -> RenderableType:
    """Best predicted layouts: step time, the shares it is made of, memory."""
    used = {head: key for head, key in _PARTS.items() if any(i["predicted"]["step_time"][key] > 0 for i in items)}
    labels, common = _without_common_words([item["label"] for item in items])
    table = _table("#", "layout", "MFU", "step", *used, "memory")
    for item, label in zip(items, labels, strict=True):
        predicted = item["predicted"]
        parts = (_share(predicted["step_time"][key], predicted["step_time_s"]) for key in used.values())
        step, memory = format_seconds(predicted["step_time_s"]), format_bytes(predicted["peak_bytes"])
        table.add_row(str(item["rank"]), label, f"{predicted['mfu']:.1%}", step, *parts, memory)
    notes = f"Predicted, nothing measured; {_error(items)}. Parts are shares of the step, communication as exposed."
    return Group(Text(title, style="bold"), Text(f"all layouts: {common}"), table, Text(notes, style="dim"))


def ranking_table(items: Sequence[dict[str, Any]]) -> RenderableType:
    """Measured beside predicted, best measured MFU first."""
    labels, common = _without_common_words([item["label"] for item in items])
    table = _table("#", "layout", "MFU", "(pred.)", "step", "(pred.)", "memory", "(pred.)")
    for item, label in zip(items, labels, strict=True):
        measured, predicted = item["measured"], item["predicted"]
        table.add_row(
            str(item["rank"]),
            label,
            f"{measured['mfu']:.1%}",
            f"{predicted['mfu']:.1%}",
            f"{format_seconds(measured['step_time_s'])} ± {_spread(measured)}",
            format_seconds(predicted["step_time_s"]),
            format_bytes(max(measured["peak_bytes"])),
            format_bytes(predicted["peak_bytes"]),
        )
    notes = f"Measured, with the prediction in brackets; {_error(items)}."
    head = Text.assemble(("ranking by measured MFU", "bold"), f", all layouts: {common}")
    return Group(head, table, Text(notes, style="dim"))


def sweep_view(
    sweep: dict[str, Any], ranking: Sequence[dict[str, Any]], trials: Sequence[dict[str, Any]]
) -> RenderableType:
    """One sweep: progress, trials by state, ranking, and what has no rank."""
    parts: list[RenderableType] = [_headline(sweep)]
    if sweep["state"] in ("queued", "running"):
        parts.append(ProgressBar(total=1.0, completed=sweep["progress"]["fraction"], width=60))
    if ranking:
        parts.append(ranking_table(ranking))
    others = [trial for trial in trials if trial["state"] != "complete"]
    if others:
        parts.append(_others_table(others))
    return Group(*parts)


def catalog_table(rows: Sequence[dict[str, str]]) -> Table:
    """Rows as they are, one column per key."""
    table = _table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    return table


def _headline(sweep: dict[str, Any]) -> Text:
    states = ", ".join(f"{count} {state}" for state, count in sweep["trials"].items() if count)
    text = Text.assemble((sweep["id"], "bold"), f" {sweep['model']} on {sweep['cluster']}: ", (sweep["state"], "bold"))
    text.append(f", {states or 'no trials yet'}")
    if sweep["stop_detail"]:
        text.append(f"; {sweep['stop_reason']}: {sweep['stop_detail']}")
    return text


def _others_table(trials: Sequence[dict[str, Any]]) -> Table:
    table = _table("trial", "layout", "state", "why")
    for trial in trials:
        failure = trial["failure"]
        why = f"{failure['kind']}: {failure['message']}" if failure else ""
        table.add_row(str(trial["number"]), trial["label"], trial["state"], why)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "left" if column in _WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column not in ("why", "source"))
    return table


def _without_common_words(labels: Sequence[str]) -> tuple[list[str], str]:
    """The labels without the words that all share, and those words: what differs is what is being compared."""
    words = [label.split() for label in labels]
    common = [word for word in words[0] if all(word in other for other in words)] if words else []
    if len(words) < 2:
        return list(labels), "-"
    short = [" ".join(word for word in label if word not in common) or "(as all)" for label in words]
    return short, " ".join(common) or "-"


def _share(part_s: float, total_s: float) -> str:
    return f"{part_s / total_s:.0%}" if part_s else "-"


def _spread(measured: dict[str, Any]) -> str:
    return format_seconds(measured["step_time_spread_s"] / 2)


def _error(items: Sequence[dict[str, Any]]) -> str:
    error = items[0]["predicted"]["relative_error"] if items else None
    return "not validated on this device" if error is None else f"median error of step times {error:.0%}"
