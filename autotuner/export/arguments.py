"""A layout as command-line arguments in our own words, for a training loop of one's own.

``--tensor-parallel-degree 2 --recompute full --sequence-parallel``: fields of a layout with dashes. A switch is said as
``argparse.BooleanOptionalAction`` reads it. A script reads the fields that it knows; the others keep their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from autotuner.core import codec
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.option import Kind
from autotuner.core.rules.collectives import collective_environment
from autotuner.export.command import Flags, launched
from autotuner.export.target import Export, Imported, Note, NoteKind, Target

_VERSION = str(codec.SCHEMA_VERSION)
"""Fields of a layout are named by the codec's version."""


def _write(job: Job, layout: Layout) -> Export:
    arguments = ["--seq-len", str(job.workload.seq_len), "--global-batch-size", str(job.workload.global_batch_size)]
    for name in OPTIONS:
        if _is_said(layout, name):
            arguments += _said(name, getattr(layout, name))
    return Export(
        format=ExportFormat.ARGUMENTS,
        layout=layout,
        version=_VERSION,
        arguments=tuple(arguments),
        environment=collective_environment(layout),
        defaults=("fields of a layout that are not said keep the defaults that docs/layouts.md lists",),
        usage="append them to the command that starts your script under torchrun",
    )


def _is_said(layout: Layout, name: str) -> bool:
    """Return what differs from its default, and what a script's own default may well differ from."""
    return OPTIONS[name].always_shown or getattr(layout, name) != OPTIONS[name].default


def _said(name: str, value: int) -> list[str]:
    flag = name.replace("_", "-")
    if OPTIONS[name].kind == Kind.SWITCH:
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(OPTIONS[name].to_plain(value))]


# ---------------------------------------------------------------- read
def _read(text: str, num_ranks: int | None) -> Imported:
    """The layout that arguments say; fields that are not said have our own defaults.

    Raises:
        InvalidInput: There is no field of a layout, a value is none of its field, or the ranks do not fit.
    """
    command = launched(text)
    given = command.arguments
    fields = {name: _value(given, name) for name in OPTIONS if name in given or f"no_{name}" in given}
    if not fields:
        raise InvalidInput("config", text[:60], "has no argument that names a field of a layout")
    ranks = num_ranks or command.num_ranks
    layout, notes = _of_ranks(Layout(**fields), fields, ranks)
    return Imported(
        format=ExportFormat.ARGUMENTS,
        version=_VERSION,
        layout=layout,
        num_ranks=ranks or layout.world_size,
        seq_len=_batch(given, "seq_len"),
        global_batch_size=_batch(given, "global_batch_size"),
        notes=(*notes, *_ignored(given), *command.notes),
    )


def _value(given: Flags, name: str) -> Any:
    option = OPTIONS[name]
    if option.kind == Kind.SWITCH:
        negated = given.switch(f"no_{name}")
        return given.switch(name) if negated is None else not negated
    if option.kind == Kind.CHOICE:
        return option.from_plain(given.text(name) or "")
    number = given.integer(name)
    if number is None:
        raise InvalidInput(name, "", "must be a whole number")
    return number


def _batch(given: Flags, name: str) -> int | None:
    number = given.integer(name)
    if number is not None and number < 1:
        raise InvalidInput(name, number, "must be above 0", 1)
    return number


def _of_ranks(layout: Layout, fields: Mapping[str, Any], ranks: int | None) -> tuple[Layout, tuple[Note, ...]]:
    """The layout on so many ranks: those that no degree takes are replicas, as a loop that names none has them."""
    if ranks is None or layout.world_size == ranks:
        return layout, ()
    left, rest = divmod(ranks, layout.world_size)
    if rest or left == 0 or fields.keys() & {"data_parallel_replicate_degree", "data_parallel_shard_degree"}:
        raise InvalidInput("num_ranks", ranks, f"the degrees multiply to {layout.world_size}", layout.world_size)
    detail = f"{left} replicas take the ranks that no degree names"
    note = Note(kind=NoteKind.ASSUMED, setting="--data-parallel-replicate-degree", detail=detail)
    return replace(layout, data_parallel_replicate_degree=left), (note,)


def _ignored(given: Flags) -> Iterator[Note]:
    known = {*OPTIONS, *(f"no_{name}" for name in OPTIONS), "seq_len", "global_batch_size"}
    names = [name for name in given.values if name not in known]
    for name in names:
        near = get_close_matches(name, OPTIONS, 1, 0.85)
        detail = f"is no field of a layout; {near[0]} is" if near else "is no field of a layout"
        yield Note(kind=NoteKind.IGNORED, setting=f"--{name.replace('_', '-')}", detail=detail)


_OWN = re.compile(
    r"(?:^|\s)--((data-parallel-(replicate|shard)|(tensor|context|expert|pipeline)-parallel)-degree|shard-level|"
    r"pipeline-schedule|attention-kernel|recompute-every|gradient-bucket-bytes)\b"
)
"""Fields that no trainer's arguments are called like."""

ARGUMENTS = Target(
    format=ExportFormat.ARGUMENTS,
    version=_VERSION,
    rules=(),
    elsewhere=frozenset(),
    write=_write,
    read=_read,
    recognises=lambda text: bool(_OWN.search(text.replace("_", "-"))),
)
