"""Retunes and MFU gates, as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.core import documents
from autotuner.core.cluster import SIMULATED
from autotuner.core.layout import Layout
from autotuner.core.units import format_rate
from autotuner.core.upkeep import RetuneOutcome, Trigger
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


Retune = Mapping[str, Any]


def _trigger_in_words(trigger: Trigger) -> str:
    match trigger:
        case Trigger.CRON:
            return "due"
        case Trigger.CAUGHT_UP:
            return "caught up"
        case Trigger.MANUAL:
            return "asked for"
        case Trigger.ENVIRONMENT:
            return "new software"
        case Trigger.LINKS:
            return "new links"


def _verdict_in_words(outcome: Mapping[str, Any]) -> str:
    """``unchanged``, ``better found``; ``baseline set`` of a first run, which was compared with nothing."""
    return documents.restore(RetuneOutcome, dict(outcome), "outcome").word.replace("_", " ")


def due_in_words(retune: Retune) -> str:
    """When it is due: ``At 02:00 every day (Europe/Berlin), next 2026-03-02 02:00``."""
    when = f"{retune['cron_in_words']} ({retune['time_zone']})"
    return f"{when}, paused" if retune["is_paused"] else f"{when}, next {_at(retune['next_due_at'], retune)}"


def retune_table(retunes: Sequence[Retune]) -> RenderableType:
    """A line for each."""
    if not retunes:
        return Text("no retune is stored; `autotuner retune add NAME --cron '0 2 * * *' ...` stores one")
    table = plain_table("name", "layout", "reaches", "next due", "last run")
    for one in retunes:
        table.add_row(
            one["name"],
            layout_in_words(one["incumbent"]),
            _reached(one),
            "paused" if one["is_paused"] else _at(one["next_due_at"], one),
            _last(one),
        )
    return table


def retune_view(retune: Retune) -> RenderableType:
    """One retune, with its last outcome."""
    head = f"{retune['name']}: {retune['model']} on {retune['cluster']}, {due_in_words(retune)}"
    head += f", by {retune['created_by']}" if retune["created_by"] else ""
    in_use = f"in use: {layout_in_words(retune['incumbent'])}"
    if retune["num_baseline_runs"]:
        runs = "1 run" if retune["num_baseline_runs"] == 1 else f"{retune['num_baseline_runs']} runs"
        in_use += f", held to {_reached(retune)}, the mean of {runs}"
    parts = [Text(head), Text(in_use), Text(f"last run: {_last(retune)}")]
    outcome = (retune["last_run"] or {}).get("outcome")
    return Group(*parts, *(_sentences(outcome) if outcome else ()))


def history_view(
    runs: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], time_zone: str
) -> RenderableType:
    """A line for each run, newest first, then the sentences of those that were not as before."""
    if not runs:
        return Text("it has not run yet")
    by_run = {point["run_id"]: point for point in points}
    table = plain_table("due", "why", "state", "reached", "baseline", "band of noise", "measurements")
    for run in runs:
        table.add_row(*_row(run, by_run.get(run["id"]), time_zone))
    told = [
        Text(f"{_local(run['due_at'], time_zone)}: {'. '.join(_said(run['outcome']))}")
        for run in runs
        if run["outcome"] and run["outcome"]["verdict"] != "unchanged"
    ]
    return Group(table, *told)


def outcome_view(outcome: Mapping[str, Any]) -> RenderableType:
    """How a run ended, a line for each sentence."""
    return Group(Text(_verdict_in_words(outcome)), *_sentences(outcome))


def _row(run: Mapping[str, Any], point: Mapping[str, Any] | None, time_zone: str) -> Iterator[str]:
    yield _local(run["due_at"], time_zone)
    missed = f", for {run['num_missed']} more" if run["num_missed"] else ""
    yield _trigger_in_words(Trigger(run["trigger"])) + missed
    yield _verdict_in_words(run["outcome"]) if run["outcome"] else run["state"]
    if point is None:
        yield from ("-", "-", "-", "-")
        return
    yield format_rate(point["tokens_per_s"], "token/s")
    if point["reference"] is None:
        yield from ("-", "-")
    else:
        yield format_rate(point["reference"], "token/s")
        yield f"± {100 * (point['band_high'] / point['reference'] - 1):.1f} %"
    yield str(point["num_measurements"])


def _sentences(outcome: Mapping[str, Any]) -> list[Text]:
    return [Text(f"  {sentence}") for sentence in _said(outcome)]


def _said(outcome: Mapping[str, Any]) -> list[str]:
    return [outcome["detail"], *outcome["explanation"]]


def layout_in_words(layout: Mapping[str, Any] | None) -> str:
    """Return all words of the layout in use, precision included."""
    return (
        "not known before the first run" if layout is None else str(documents.restore(Layout, dict(layout), "layout"))
    )


def _reached(retune: Retune) -> str:
    rate, mfu = retune["measured_tokens_per_s"], retune["measured_mfu"]
    simulated = ", simulated" if retune["engine"] == SIMULATED else ""
    return "-" if rate is None else f"{format_rate(rate, 'token/s')} ({100 * mfu:.1f} % MFU{simulated})"


def _last(retune: Retune) -> str:
    run = retune["last_run"]
    if run is None:
        return "never"
    state = _verdict_in_words(run["outcome"]) if run["outcome"] else f"goes on as {run['sweep_id']}"
    return f"{_at(run['due_at'], retune)}, {state}"


def _at(epoch_s: float, retune: Retune) -> str:
    return _local(epoch_s, retune["time_zone"])


def _local(epoch_s: float, time_zone: str) -> str:
    return datetime.fromtimestamp(epoch_s, ZoneInfo(time_zone)).strftime("%Y-%m-%d %H:%M")
