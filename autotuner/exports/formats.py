"""All formats with their targets, and the NCCL variables of a script, which are read alike for all formats.

Source of NCCL's names and values: NCCL 2.28, docs/userguide/source/env.rst. ``collective_environment`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from autotuner.catalog.models import model_called, model_like
from autotuner.core.choices import CollectiveAlgorithm, CollectiveProtocol, ExportFormat
from autotuner.core.errors import InvalidInput, sendable
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import reasons, require_legal
from autotuner.core.rules.rule import Reason
from autotuner.exports.accelerate import ACCELERATE
from autotuner.exports.command import COLLECTIVES
from autotuner.exports.common_rules import rotation_sentence
from autotuner.exports.deepspeed import DEEPSPEED
from autotuner.exports.megatron.command_line import MEGATRON_LM
from autotuner.exports.megatron.recipes import MEGATRON_BRIDGE, NEMO
from autotuner.exports.own_formats import ARGUMENTS, SBATCH, TORCHRUN
from autotuner.exports.target import Export, Imported, Note, NoteKind, Target
from autotuner.exports.torchtitan.read import TORCHTITAN, TORCHTITAN_CONFIG
from autotuner.exports.transformers import TRANSFORMERS

FORMATS: Mapping[ExportFormat, Target] = {
    target.format: target
    for target in (
        NEMO,
        MEGATRON_BRIDGE,
        MEGATRON_LM,
        SBATCH,
        TORCHRUN,
        ACCELERATE,
        DEEPSPEED,
        TORCHTITAN_CONFIG,
        TRANSFORMERS,
        TORCHTITAN,
        ARGUMENTS,
    )
}
"""Targets in the order in which a text is offered to them."""


def target_of(name: str) -> Target:
    """The target of a format, by the format's name.

    Raises:
        InvalidInput: There is none; the rule lists those there are.
    """
    for target in FORMATS.values():
        if target.format == name:
            return target
    raise InvalidInput("format", name, f"must be one of {', '.join(FORMATS)}")


def export(job: Job, layout: Layout, name: str) -> Export:
    """The layout in a trainer's words, with what these cannot say.

    Raises:
        InvalidInput: There is no such format, or it starts our own trial and that would refuse the layout.
    """
    target = target_of(name)
    if not target.format.is_of_a_trainer:
        require_legal(layout, job, target.rules)
    written = target.write(job, layout)
    rotated = rotation_sentence(job, layout) if "stage_rotation" in target.decided_elsewhere else ()
    unsupported = reasons(layout, job, target.rules)
    return replace(written, left_to_trainer=(*written.left_to_trainer, *rotated), unsupported=unsupported)


def refusals(job: Job, layout: Layout, wanted: ExportFormat) -> tuple[Reason, ...]:
    """Return every reason for which a script of that format would end before its first step.

    Only scripts that start our own trial have any: a trainer is told what it knows, and the export lists the rest.
    """
    return () if wanted.is_of_a_trainer else reasons(layout, job, FORMATS[wanted].rules)


def read(text: str, name: str | None = None, num_ranks: int | None = None) -> Imported:
    """A trainer's configuration as a layout.

    Args:
        text: Arguments, a script that holds them, a configuration file, or what a trainer printed of its arguments.
        name: Its format; None: found by what it looks like.
        num_ranks: In all, where the caller knows it: most configurations do not say it.

    Raises:
        InvalidInput: No format is recognised, the one that is named is not read, or a setting makes no sense.
    """
    try:
        target = recognise(text) if name is None else target_of(name)
        if target.read is None:
            readable = ", ".join(t.format for t in FORMATS.values() if t.read)
            raise InvalidInput("format", target.format, f"is written, not read; read are {readable}")
        return _sendable(with_collectives(target.read(text, num_ranks), text))
    except RecursionError as error:  # parsers of JSON, TOML and YAML, of brackets in brackets
        raise InvalidInput("config", text[:60], "is nested too deep") from error


def read_with_model(text: str, name: str | None = None, num_ranks: int | None = None) -> Imported:
    """A trainer's configuration, as ``read`` reads it, with the catalog's model where it has or names one."""
    found = read(text, name, num_ranks)
    if found.model is not None:
        return replace(found, model=model_like(found.model))
    model = model_called(found.model_name)
    if model is None:
        return found
    taken = f"the catalog's {model.name} is taken for it"
    note = Note(kind=NoteKind.ASSUMED, setting=found.model_name, detail=taken)
    return replace(found, model=model, notes=(*found.notes, note))


def recognise(text: str) -> Target:
    """The target whose configuration the text looks like.

    Raises:
        InvalidInput: It looks like none.
    """
    for target in FORMATS.values():
        if target.recognises(text):
            return target
    readable = ", ".join(t.format for t in FORMATS.values() if t.read)
    raise InvalidInput("config", text[:60], f"looks like no configuration that is known; say its format: {readable}")


def _sendable(found: Imported) -> Imported:
    """Return it with names that can be shown: JSON and Python can spell text that is no Unicode."""
    notes = (replace(note, setting=sendable(note.setting), detail=sendable(note.detail)) for note in found.notes)
    return replace(found, notes=tuple(notes), model_name=sendable(found.model_name))


_SET = re.compile(rf"""(?:^|[\s"';{{,])({COLLECTIVES})=["']?([^\s"'}}\\]*)""", re.MULTILINE)

_ALGORITHMS = {
    "ring": CollectiveAlgorithm.RING,
    "tree": CollectiveAlgorithm.TREE,
    "nvls": CollectiveAlgorithm.NVLS,
    "nvls,nvlstree": CollectiveAlgorithm.NVLS,
    "collnetdirect": CollectiveAlgorithm.COLLNET,
    "collnetchain": CollectiveAlgorithm.COLLNET,
    "collnetdirect,collnetchain": CollectiveAlgorithm.COLLNET,
    "collnetdirect,collnetchain,ring": CollectiveAlgorithm.COLLNET,
}
_PROTOCOLS = {member.label: member for member in CollectiveProtocol if member != CollectiveProtocol.AUTO}
_FIELDS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "NCCL_ALGO": {
        f"{prefix}{word}": {"collective_algorithm": algorithm}
        for prefix in ("", "allreduce:")
        for word, algorithm in _ALGORITHMS.items()
    },
    "NCCL_PROTO": {word: {"collective_protocol": protocol} for word, protocol in _PROTOCOLS.items()},
    "NCCL_PXN_DISABLE": {"0": {"pxn": True}, "1": {"pxn": False}},
    "NCCL_IB_SPLIT_DATA_ON_QPS": {"1": {}},
}
"""Fields by variable and by its value in small letters."""

_COUNTED = {
    "NCCL_MIN_NCHANNELS": "collective_channels",
    "NCCL_MAX_NCHANNELS": "collective_channels",
    "NCCL_IB_QPS_PER_CONNECTION": "queue_pairs",
}
_UNKNOWN = {
    "NCCL_IB_SPLIT_DATA_ON_QPS": "whole messages take turns here, and a layout's queue pairs share the bytes of each",
    "NCCL_PXN_DISABLE": "must be 0 or 1",
    "NCCL_IB_QPS_PER_CONNECTION": "must be a whole number from 1 to 999",
}
"""Messages for a value that stands for no field."""

_MOST_DIGITS = 3


def with_collectives(imported: Imported, text: str) -> Imported:
    """Return what was read of a text, with what its variables tell NCCL; one rank has nobody to communicate with."""
    said = dict(_SET.findall(text))
    if not said or imported.layout.world_size == 1:
        return imported
    layout, notes = imported.layout, []
    for name, value in said.items():
        fields = _fields(name, value)
        if fields is None:
            detail = _UNKNOWN.get(name, "a layout has no such choice for all-reduces")
            notes.append(Note(kind=NoteKind.IGNORED, setting=f"{name}={value}"[:60], detail=detail))
        else:
            layout = replace(layout, **fields)  # type: ignore[arg-type]  # each field has its own type
    return replace(imported, layout=layout, notes=(*imported.notes, *notes))


def _fields(name: str, value: str) -> Mapping[str, object] | None:
    """The field that a variable says; None: it says none."""
    if name in _FIELDS:
        return _FIELDS[name].get(value.lower())
    is_number = value.isdecimal() and value.isascii() and len(value) <= _MOST_DIGITS
    return {_COUNTED[name]: int(value)} if is_number and int(value) >= OPTIONS[_COUNTED[name]].lowest else None
