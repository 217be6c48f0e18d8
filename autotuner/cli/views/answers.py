"""The answer of a sweep, and its front."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from autotuner.core.objective import Metric
from autotuner.report.terminal import LayoutRow, LayoutTable
from autotuner.search.text.sentences import in_sentences, percent, signed

_NUM_BEATEN = 3


def answer_view(answer: Mapping[str, Any]) -> RenderableType:
    """The answer in one sentence, how sure it is, what it beats and why.

    Args:
        answer: As the service tells it.
    """
    return Group(Text(f"Best layout: {answer['sentence']}", style="bold"), *(Text(line) for line in _lines(answer)))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    yield f"How sure: {in_sentences(answer['certainty']['sentences'])}"
    told_apart = [one for one in answer["beaten"] if not one["is_tie"]][:_NUM_BEATEN]
    if beaten := [f"{one['said']} ({signed(one['gain'], one['gain_error'])})" for one in told_apart]:
        yield f"It is ahead of {'; '.join(beaten)}."
    if why := answer["why"]:
        yield f"Why it is ahead of {why['than']}: {in_sentences(why['sentences'])}"


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
    return Group(_table(answer["points"], metrics), *(Text(line) for line in _paragraphs(answer)))


def _table(points: Sequence[Mapping[str, Any]], metrics: Sequence[Metric]) -> LayoutTable:
    heads = (*(metric.noun for metric in metrics), "of the front")
    return LayoutTable(keys=("trial",), heads=heads, rows=[_row(point, metrics) for point in points])


def _row(point: Mapping[str, Any], metrics: Sequence[Metric]) -> LayoutRow:
    values = (metric.figure(value) for metric, value in zip(metrics, point["values"], strict=True))
    cells = (*values, percent(point["volume_share"]))
    return LayoutRow(keys=(f"{point['number']}{_mark(point)}",), layout=point["label"], cells=cells)


def _mark(point: Mapping[str, Any]) -> str:
    return f"{'*' if point['is_first'] else ''}{'°' if point['is_knee'] else ''}"


def _paragraphs(answer: Mapping[str, Any]) -> Iterator[str]:
    for point in answer["points"]:
        yield f"trial {point['number']}: {'; '.join(point['why'])}"
    yield f"* first by {_weighed(answer['profile']) or 'what the sweep ranks by'}"
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


def _weighed(profile: Sequence[Mapping[str, Any]]) -> str:
    """``MFU x2, simplicity x1``; one metric alone has no weight."""
    if len(profile) == 1:
        return Metric(profile[0]["metric"]).noun
    return ", ".join(f"{Metric(one['metric']).noun} x{one['weight']:g}" for one in profile)


def _and(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
