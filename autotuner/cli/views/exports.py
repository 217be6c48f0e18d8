"""Layouts in the words of a trainer, and configurations that were read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.cli.current import CurrentJob
from autotuner.cli.inputs import cluster_name
from autotuner.core.documents import restore
from autotuner.report.prediction import prediction_report
from autotuner.report.terminal import render
from autotuner.report.words import job_in_words, model_in_words
from autotuner.search.predictions import ModelSize, PredictionTable


def export_notes(answer: Mapping[str, Any]) -> RenderableType:
    """Say how to use an export, what it cannot express, and which settings keep the trainer's defaults."""
    release = f" {answer['version']}" if answer["version"] else ""
    head = Text.assemble((f"{answer['format']}{release}", "bold"), f": {answer['label']}")
    return Group(head, *map(Text, _lines(answer)))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    if answer["usage"]:
        yield f"use: {answer['usage']}"
    if len(answer["files"]) + bool(answer["arguments"]) > 1:
        names = ", ".join(file["name"] for file in answer["files"])
        yield f"one after the other: {'arguments, ' if answer['arguments'] else ''}{names}; --output FOLDER parts them"
    if answer["unsaid"]:
        yield "what it cannot say:"
        yield from (f"  {reason['message']}" for reason in answer["unsaid"])
    if answer["defaults"]:
        yield "left as it is there:"
        yield from (f"  {default}" for default in answer["defaults"])


_KINDS = ("changed", "unknown", "assumed", "ignored")
"""Of notes, in the order in which they matter."""


def imported_view(read: Mapping[str, Any]) -> RenderableType:
    """The layout with its words, model and workload; notes by kind."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("read as", " ".join(filter(None, (read["format"], read["version"]))))
    table.add_row("layout", Text(read["label"], style="bold"))
    table.add_row("model", _model(read))
    table.add_row("job", _job(read))
    for kind, line in _notes(read["notes"]):
        table.add_row(kind, line)
    return table


def compared_view(read: Mapping[str, Any], job: CurrentJob, answer: PredictionTable) -> RenderableType:
    """Show the layout that runs today below the best ones that the trainer can run."""
    title = job_in_words(
        answer.model_size,
        cluster=cluster_name(job.cluster or ""),
        global_batch=job.global_batch or 0,
        seq_len=job.seq_len or 0,
    )
    told = f"{title}: the best that {read['format']} can run, of {answer.num_legal:,} legal layouts"
    return Group("", render(prediction_report(answer, told)))


def next_view(read: Mapping[str, Any], job: CurrentJob, answer: PredictionTable | None) -> RenderableType:
    """The commands that go on from here.

    Args:
        read: The configuration.
        job: Its job.
        answer: What runs today beside the best, where that was asked.
    """
    return Group(Text("next", style="bold"), *map(Text, _next(read, job, answer)))


def _model(read: Mapping[str, Any]) -> str:
    model = read["model"]
    if model is None:
        return str(read["model_name"]) or "not said"
    size = restore(ModelSize, read["model_size"])
    return f"{model_in_words(size)}: {model['num_layers']} layers, {model['hidden_size']} wide"


def _job(read: Mapping[str, Any]) -> str:
    ranks, batch, length = read["num_ranks"], read["global_batch_size"], read["seq_len"]
    said = "ranks not said, so as few as the rest needs (--ranks)"
    if ranks:
        said = f"{ranks} rank{'s' if ranks > 1 else ''}"
    sequences = f"{batch} sequences" if batch else "global batch not said"
    return f"{said}; {sequences}{f' of {length} tokens' if length else '; sequence length not said'}"


def _notes(notes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """One line for all settings of a kind of which the same is to be said; the kind stands before its first line."""
    for kind in _KINDS:
        settings: dict[str, list[str]] = {}
        for note in notes:
            if note["kind"] == kind:
                settings.setdefault(note["detail"], []).append(note["setting"])
        for index, (detail, named) in enumerate(settings.items()):
            yield "" if index else kind, f"{', '.join(named)}: {detail}"


def _next(read: Mapping[str, Any], job: CurrentJob, answer: PredictionTable | None) -> Iterator[str]:
    options, today, wanted = job.options(), shlex.quote(read["label"]), read["format"]
    if read["model"] is not None and job.model is None:
        yield "  repeat this command with --save-model model.json, and write model.json in the place of MODEL"
    if answer is None:
        yield f"  autotuner predict {options} --current {today} --format {wanted}"
    yield f"  autotuner explain {options} --layout {today}"
    if answer is not None and answer.items:
        best = shlex.quote(answer.items[0].label)
        yield f"  autotuner export {best} {options} --format {wanted}"
