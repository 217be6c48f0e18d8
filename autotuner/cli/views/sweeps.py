"""A sweep: how far it is, its ranking, and the trials that have no rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autotuner.cli.console import plain_table
from autotuner.cli.views.rankings import ranking_table, trial_number
from autotuner.domain.layouts.choice import Precision
from autotuner.search.text.sentences import EMULATED

__all__ = ["sweep_view"]


def sweep_view(
    sweep: dict[str, Any], ranking: Sequence[dict[str, Any]], trials: Sequence[dict[str, Any]]
) -> RenderableType:
    """One sweep: progress, trials by state, ranking, and what has no rank."""
    parts: list[RenderableType] = [_headline(sweep)]
    if sweep["state"] in ("queued", "running"):
        bar = ProgressBar(total=1.0, completed=sweep["progress"]["fraction"], width=60)
        parts.append(Padding(bar))  # a bar alone does not end its line
    if ranking:
        parts.append(ranking_table(ranking))
    others = [trial for trial in trials if trial["state"] != "complete" or _is_emulated(trial)]
    if others:
        parts.append(_others_table(others))
    return Group(*parts)


def _headline(sweep: dict[str, Any]) -> Text:
    states = ", ".join(f"{count} {state}" for state, count in sweep["trials"].items() if count)
    text = Text.assemble((sweep["id"], "bold"), f" {sweep['model']} on {sweep['cluster']}: ", (sweep["state"], "bold"))
    text.append(f", {states or 'no trials yet'}")
    if sweep["stop_detail"]:
        text.append(f"; {sweep['stop_reason']}: {sweep['stop_detail']}")
    return text


def _others_table(trials: Sequence[dict[str, Any]]) -> Table:
    table = plain_table("trial", "layout", "state", "why")
    for trial in trials:
        failure = trial["failure"]
        why = f"{failure['kind']}: {failure['message']}" if failure else EMULATED if _is_emulated(trial) else ""
        table.add_row(trial_number(trial["id"]), trial["label"], trial["state"], why)
    return table


def _is_emulated(trial: dict[str, Any]) -> bool:
    return bool(trial["layout"]["precision"] == Precision.FP8_EMULATED.label)
