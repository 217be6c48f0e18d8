"""Explanations: of a layout, of a trial that measured it, and of what many measured layouts teach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from autotuner.core import documents
from autotuner.core.documents import restore
from autotuner.core.measurement import Measurement
from autotuner.core.model import ModelSize
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.report.terminal import plain_table
from autotuner.report.words import model_in_words
from autotuner.search.explain.limits import PART_WORDS
from autotuner.search.text.sentences import expected_mfu, expected_seconds, fit_in_words, in_sentences, percent
from autotuner.search.text.trials import certainty, facts, phases


def explanation_view(explained: Mapping[str, Any]) -> RenderableType:
    """Where time and memory go, and the changes that would help, would not fit, or cannot run."""
    predicted = explained["predicted"]
    step = expected_seconds(predicted["step_time_s"], predicted["relative_error"])
    mfu = expected_mfu(predicted["mfu"], predicted["relative_error"], predicted["precision_utilization"])
    return Group(
        Text(model_in_words(restore(ModelSize, explained["model_size"]))),
        Text(explained["label"], style="bold"),
        Text(f"predicted, not measured: step {step}, MFU {mfu}"),
        *([Text(in_sentences(explained["caveats"]), style="dim")] if explained["caveats"] else []),
        _time_table(explained["time"]),
        Text(_memory(explained)),
        _memory_table(explained["memory"]),
        *(Text(link["sentence"]) for link in explained.get("links", ())),
        *(Text(route["sentence"]) for route in explained.get("routes", ())),
        *(Text(ways["sentence"], style="dim") for ways in explained.get("nccl", ())),
        *(_bandwidth(explained["bandwidth"]) if explained.get("bandwidth") else ()),
        *([_batch_table(explained["batches"])] if explained.get("batches") else []),
        *_changes(explained),
    )


def measurement_view(document: Mapping[str, Any]) -> RenderableType:
    """Facts about a measured trial, and where its step went."""
    measured = documents.restore(Measurement, dict(document))
    step, mfu = format_seconds(measured.step_time_s), expected_mfu(measured.mfu, None)
    numbers = f": step {step} {certainty(measured)}, MFU {mfu} of the {measured.peak_source}"
    head = Text.assemble(("measured", "bold"), numbers)
    lines = [Text(f"  {name}: {text}") for name, text in facts(measured).items()]
    breakdown = measured.breakdown
    if breakdown is None:
        return Group(head, *lines)
    table = plain_table("step", "share", "part")
    for phase in phases(breakdown):
        table.add_row(format_seconds(phase.seconds), percent(phase.share), phase.name)
    title = f"where the step of rank {breakdown.rank} went, {format_seconds(breakdown.step_s)} under the profiler"
    return Group(head, *lines, Text(title), table)


def rules_view(rules: Mapping[str, Any]) -> RenderableType:
    """One line per statement."""
    head = f"from {rules['num_measured']} measured trials, in pairs that differ in one choice alone"
    return Group(Text(head, style="bold"), *(Text(item["statement"]) for item in rules["items"]))


def _time_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("step", "share", "part", "limited by")
    for part in parts:
        table.add_row(format_seconds(part["seconds"]), percent(part["share"]), PART_WORDS[part["part"]], part["limit"])
    return table


def _memory(explained: Mapping[str, Any]) -> str:
    predicted, margin_bytes = explained["predicted"], explained["margin_bytes"]
    fit = fit_in_words(predicted["fits"], predicted["fit_probability"])
    where = "below" if margin_bytes >= 0 else "above"
    return (
        f"peak {format_bytes(predicted['peak_bytes'])}, {format_bytes(abs(margin_bytes))} {where} the limit of "
        f"{format_bytes(explained['limit_bytes'])}: {fit}"
    )


def _memory_table(parts: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("memory", "share", "part")
    for part in parts:
        table.add_row(format_bytes(part["num_bytes"]), percent(part["share"]), PART_WORDS[part["part"]])
    return table


def _bandwidth(curve: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The step of each way that fits, a decade of bandwidth apart, and what follows; nothing on a single node."""
    if not curve["ways"]:
        return
    ways = [way for way in curve["ways"] if way["fits"]]
    table = plain_table("between nodes", *(way["name"] for way in ways))
    for index, bytes_per_s in list(enumerate(curve["bandwidths_bytes_per_s"]))[::4]:
        steps = (format_seconds(way["step_s"][index]) for way in ways)
        table.add_row(format_rate(8 * bytes_per_s, "bit/s"), *steps)
    yield table
    yield from (Text(in_sentences([sentence])) for sentence in curve["sentences"])


def _batch_table(ways: Sequence[Mapping[str, Any]]) -> Table:
    """Ways to deal and pack sequences that differ; the layout's own is marked."""
    table = plain_table("step", "slowest rank", "padding", "batches")
    for way in ways:
        name = f"{way['name']}{' (this layout)' if way['is_own'] else ''}"
        shares = f"+{percent(way['imbalance'])}", f"+{percent(way['padding_waste'])}"
        table.add_row(format_seconds(way["step_time_s"]), *shares, name)
    return table


def _changes(explained: Mapping[str, Any]) -> Iterator[RenderableType]:
    kinds = (
        ("would help", [(change["sentence"], change["label"]) for change in explained["helpful"]]),
        ("would not fit", [(change["sentence"], change["label"]) for change in explained["too_large"]]),
        ("cannot run", [(f"{no['change']}: {no['reason']['message']}", "") for no in explained["illegal"]]),
    )
    for head, changes in kinds:
        yield Text(head if changes else f"{head}: no change of one step", style="bold")
        for sentence, layout in changes:
            yield Padding(Text(sentence), (0, 0, 0, 2))
            if layout:
                yield Padding(Text(layout, style="dim"), (0, 0, 0, 6))
