"""All export formats with their targets, and the reader of NCCL variables, which is the same for all formats.

Source of NCCL's names and values: NCCL 2.28, docs/userguide/source/env.rst. ``collective_environment`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from autotuner.catalog.models import model_called, model_like
from autotuner.core.choices import CollectiveAlgorithm, CollectiveProtocol, ExportFormat, ExportLauncher
from autotuner.core.errors import InvalidInput, sendable
from autotuner.core.job import Job
from autotuner.core.layout import OPTIONS, Layout
from autotuner.core.rules.legality import reasons, require_legal
from autotuner.core.rules.rule import Reason
from autotuner.core.value import require_one_of
from autotuner.exports.accelerate import ACCELERATE
from autotuner.exports.deepspeed import DEEPSPEED
from autotuner.exports.launchers import with_launcher
from autotuner.exports.megatron.command_line import MEGATRON_LM
from autotuner.exports.megatron.recipes import MEGATRON_BRIDGE, NEMO
from autotuner.exports.own_formats import ARGUMENTS, SBATCH, TORCHRUN
from autotuner.exports.shared.command import COLLECTIVES
from autotuner.exports.shared.common_rules import rotation_sentence
from autotuner.exports.shared.target import Export, Imported, Note, NoteKind, Target
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
"""Target of each format, in the order in which the targets are tried for a text of unknown format."""


def target_of(name: str) -> Target:
    """Return the target (a trainer's writer, reader and rules) that has this format name.

    Raises:
        InvalidInput: No format has that name; the message lists the names.
    """
    require_one_of("format", name, FORMATS)
    return FORMATS[ExportFormat(name)]


def export(job: Job, layout: Layout, name: str, launcher: ExportLauncher | None = None) -> Export:
    """Return the layout as a trainer's configuration, with notes of the settings that the configuration cannot express.

    Args:
        job: The job that the layout is for.
        layout: The layout to write.
        name: The name of the format.
        launcher: Program that starts the trainer. The result then has scripts for it. None: it has none.

    Raises:
        InvalidInput: No format has that name; or the format starts the product's own trial, which cannot run the
            layout, and starts no trainer.
    """
    target = target_of(name)
    if not target.format.is_of_a_trainer:
        require_legal(layout, job, target.rules)
    written = target.write(job, layout)
    rotated = rotation_sentence(job, layout) if "stage_rotation" in target.decided_elsewhere else ()
    unsupported = reasons(layout, job, target.rules)
    found = replace(written, left_to_trainer=(*written.left_to_trainer, *rotated), unsupported=unsupported)
    return found if launcher is None else with_launcher(found, job, launcher)


def refusals(job: Job, layout: Layout, wanted: ExportFormat) -> tuple[Reason, ...]:
    """Return all rules by which a script in this format would refuse the layout before the first training step.

    Only a script that starts the product's own trial can refuse a layout. An export for another trainer contains the
    settings that the trainer knows, and lists all others in its notes.
    """
    return () if wanted.is_of_a_trainer else reasons(layout, job, FORMATS[wanted].rules)


def read(text: str, name: str | None = None, num_ranks: int | None = None) -> Imported:
    """Return the layout in a trainer's configuration, with notes of what was assumed, changed or ignored.

    Args:
        text: Arguments, a script that holds them, a configuration file, or the arguments as a trainer printed them.
        name: The name of the format; None: recognise it from the text.
        num_ranks: The number of ranks of the whole job; None: unknown. Most configurations do not contain it.

    Raises:
        InvalidInput: No format is recognised, the named format cannot be read, or a setting has an invalid value.
    """
    try:
        target = recognise(text) if name is None else target_of(name)
        if target.read is None:
            readable = ", ".join(t.format for t in FORMATS.values() if t.read)
            raise InvalidInput(
                "format",
                target.format,
                f"is a format that can only be written, not read; formats that can be read: {readable}",
            )
        return _sendable(with_collectives(target.read(text, num_ranks), text))
    except RecursionError as error:  # parsers of JSON, TOML and YAML, of brackets in brackets
        raise InvalidInput(
            "config", text[:60], "is nested too deeply to be read: remove some levels of brackets or sections"
        ) from error


def read_with_model(text: str, name: str | None = None, num_ranks: int | None = None) -> Imported:
    """Return the layout in a trainer's configuration (see ``read``), with the model from the catalog if there is one.

    A model with shapes is replaced by the catalog's model with the same shapes. If the configuration has only the name
    of the model, the result has the catalog's model of that name, and a note says so.
    """
    found = read(text, name, num_ranks)
    if found.model is not None:
        return replace(found, model=model_like(found.model))
    model = model_called(found.model_name)
    if model is None:
        return found
    taken = f"the model {model.name} of the catalog is used for it"
    note = Note(kind=NoteKind.ASSUMED, setting=found.model_name, detail=taken)
    return replace(found, model=model, notes=(*found.notes, note))


def recognise(text: str) -> Target:
    """Return the target (a trainer's writer, reader and rules) that can read a text, recognised from the text itself.

    Raises:
        InvalidInput: No target recognises the text.
    """
    for target in FORMATS.values():
        if target.recognises(text):
            return target
    readable = ", ".join(t.format for t in FORMATS.values() if t.read)
    raise InvalidInput(
        "config", text[:60], f"is not recognised as a configuration of a known format; name its format: {readable}"
    )


def _sendable(found: Imported) -> Imported:
    """Return the imported layout with names that can be encoded. JSON and Python can contain invalid Unicode."""
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
"""Fields of a layout, by NCCL variable and by the variable's value in lower case."""

_COUNTED = {
    "NCCL_MIN_NCHANNELS": "collective_channels",
    "NCCL_MAX_NCHANNELS": "collective_channels",
    "NCCL_IB_QPS_PER_CONNECTION": "queue_pairs",
}
_UNKNOWN = {
    "NCCL_IB_SPLIT_DATA_ON_QPS": (
        "whole messages are sent in turn, but the queue pairs of a layout share the bytes of each message"
    ),
    "NCCL_PXN_DISABLE": "must be 0 or 1",
    "NCCL_IB_QPS_PER_CONNECTION": "must be a whole number from 1 to 999",
}
"""Messages about values of variables that no field of a layout expresses."""

_MOST_DIGITS = 3


def with_collectives(imported: Imported, text: str) -> Imported:
    """Return the imported layout, changed by the NCCL variables that the text sets.

    A layout of one rank stays as it is, since one rank has no collectives.
    """
    said = dict(_SET.findall(text))
    if not said or imported.layout.world_size == 1:
        return imported
    layout, notes = imported.layout, []
    for name, value in said.items():
        fields = _fields(name, value)
        if fields is None:
            detail = _UNKNOWN.get(name, "is not an algorithm or protocol for all-reduces that a layout can have")
            notes.append(Note(kind=NoteKind.IGNORED, setting=f"{name}={value}"[:60], detail=detail))
        else:
            layout = replace(layout, **fields)  # type: ignore[arg-type]  # each field has its own type
    return replace(imported, layout=layout, notes=(*imported.notes, *notes))


def _fields(name: str, value: str) -> Mapping[str, object] | None:
    """Return the fields of a layout that a variable's value sets; None if it sets none."""
    if name in _FIELDS:
        return _FIELDS[name].get(value.lower())
    is_number = value.isdecimal() and value.isascii() and len(value) <= _MOST_DIGITS
    return {_COUNTED[name]: int(value)} if is_number and int(value) >= OPTIONS[_COUNTED[name]].lowest else None
