"""A configuration that was read: the layout, its job, what became of the settings, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotuner.cli.current import CurrentJob
from autotuner.units import format_count

__all__ = ["imported_view"]

_KINDS = ("changed", "assumed", "ignored")
"""Of notes, in the order in which they matter."""


def imported_view(read: Mapping[str, Any], job: CurrentJob) -> RenderableType:
    """The layout with its words, model and workload; notes by kind; the commands that go on from here."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("read as", " ".join(filter(None, (read["format"], read["version"]))))
    table.add_row("layout", Text(read["label"], style="bold"))
    table.add_row("model", _model(read))
    table.add_row("job", _job(read))
    for kind, line in _notes(read["notes"]):
        table.add_row(kind, line)
    return Group(table, Text("next", style="bold"), *map(Text, _next(read, job)))


def _model(read: Mapping[str, Any]) -> str:
    model = read["model"]
    if model is None:
        return str(read["model_name"]) or "not said"
    size = f"{format_count(read['num_parameters'])} parameters"
    if model["experts"] is not None:
        size += f", {format_count(read['num_active_parameters'])} active"
    return f"{model['name']}: {size} ({model['num_layers']} layers, {model['hidden_size']} wide)"


def _job(read: Mapping[str, Any]) -> str:
    ranks, batch, length = read["num_ranks"], read["global_batch_size"], read["seq_len"]
    said = f"{ranks} ranks" if ranks else "ranks not said, so as few as the rest needs (--ranks says how many)"
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


def _next(read: Mapping[str, Any], job: CurrentJob) -> Iterator[str]:
    options, layout = job.options(), shlex.quote(read["label"])
    if read["model"] is not None and job.model is None:
        yield "  name the model's file by repeating this command with --save-model model.json"
    yield f"  autotuner predict {options} --current {layout}"
    yield f"  autotuner explain {options} --layout {layout}"
    yield f"  autotuner export {layout} {options} --format {read['format']}"
