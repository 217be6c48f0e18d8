"""The front of a sweep: its trials with their values, why each is on it, and what beats the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.domain.runs.metric import Metric
from autotuner.search.text.sentences import percent, signed

__all__ = ["front_view"]

_NUM_BEHIND = 5
"""Trials behind the front that are told of; the JSON has all."""


def front_view(answer: Mapping[str, Any]) -> RenderableType:
    """The front as a table, a paragraph for each trial on it, and what is behind.

    Args:
        answer: As the service tells it.
    """
    metrics = [Metric(name) for name in answer["metrics"]]
    if not answer["points"]:
        return Text(f"no trial tells {_and(metric.noun for metric in metrics)} yet")
    return Group(_table(answer["points"], metrics), *(Text(line) for line in _lines(answer)))


def _table(points: Sequence[Mapping[str, Any]], metrics: Sequence[Metric]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("trial", *(metric.noun for metric in metrics), "of the front", "layout"):
        table.add_column(name, justify="left" if name == "layout" else "right", overflow="fold")
    for point in points:
        values = [metric.in_words(value) for metric, value in zip(metrics, point["values"], strict=True)]
        share = percent(point["volume_share"])
        style = "bold" if point["is_first"] else ""
        table.add_row(f"{point['number']}{_mark(point)}", *values, share, Text(point["label"]), style=style)
    return table


def _mark(point: Mapping[str, Any]) -> str:
    return f"{'*' if point['is_first'] else ''}{'°' if point['is_knee'] else ''}"


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    for point in answer["points"]:
        yield f"trial {point['number']}: {'; '.join(point['why'])}"
    weighed = ", ".join(f"{Metric(one['metric']).noun} x{one['weight']:g}" for one in answer["profile"])
    yield f"* first by {weighed or 'what the sweep ranks by'}"
    if any(point["is_knee"] for point in answer["points"]):
        yield "° nearest to the best of everything"
    for behind in answer["behind"][:_NUM_BEHIND]:
        more = _and(f"{signed(one['share'])} {Metric(one['metric']).noun}" for one in behind["changes"])
        unsure = "; within the intervals of both it may belong to the front" if behind["may_belong"] else ""
        yield f"trial {behind['number']} is behind trial {behind['by']}, which has {more}{unsure}"
    if (left := len(answer["behind"]) - _NUM_BEHIND) > 0:
        yield f"{left} more are behind the front"
    if answer["num_untold"]:
        yield f"{answer['num_untold']} ranked trials do not tell some of it"


def _and(words: Iterable[str]) -> str:
    return " and ".join(words)
