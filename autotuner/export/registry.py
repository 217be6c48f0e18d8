"""Every target by its format: what is asked by those who export and import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotuner.catalog.models import model_called, model_like
from autotuner.core.choices import ExportFormat
from autotuner.core.errors import InvalidInput, sendable
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.rules.legality import reasons, require_legal
from autotuner.core.rules.rule import Reason
from autotuner.export.arguments import ARGUMENTS
from autotuner.export.common_rules import rotation_said
from autotuner.export.deepspeed import DEEPSPEED
from autotuner.export.huggingface.accelerate import ACCELERATE
from autotuner.export.huggingface.transformers import TRANSFORMERS
from autotuner.export.megatron.command_line import MEGATRON_LM
from autotuner.export.megatron.recipes import MEGATRON_BRIDGE, NEMO
from autotuner.export.nccl import with_collectives
from autotuner.export.target import Export, Imported, Note, NoteKind, Target
from autotuner.export.torchtitan.read import TORCHTITAN, TORCHTITAN_CONFIG
from autotuner.export.trial_script import SBATCH, TORCHRUN

TARGETS: Mapping[ExportFormat, Target] = {
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
"""In the order in which a text is offered to them."""


def target_of(name: str) -> Target:
    """The target of a format, by the format's name.

    Raises:
        InvalidInput: There is none; the rule lists those there are.
    """
    for target in TARGETS.values():
        if target.format == name:
            return target
    raise InvalidInput("format", name, f"must be one of {', '.join(TARGETS)}")


def export(job: Job, layout: Layout, name: str) -> Export:
    """The layout in a trainer's words, with what these cannot say.

    Raises:
        InvalidInput: There is no such format, or it starts our own trial and that would refuse the layout.
    """
    target = target_of(name)
    if not target.format.is_of_a_trainer:
        require_legal(layout, job, target.rules)
    written = target.write(job, layout)
    rotated = rotation_said(job, layout) if "stage_rotation" in target.elsewhere else ()
    unsaid = reasons(layout, job, target.rules)
    return replace(written, defaults=(*written.defaults, *rotated), unsaid=unsaid)


def refusals(job: Job, layout: Layout, wanted: ExportFormat) -> tuple[Reason, ...]:
    """Return every reason for which a script of that format would end before its first step.

    Only scripts that start our own trial have any: a trainer is told what it knows, and the export lists the rest.
    """
    return () if wanted.is_of_a_trainer else reasons(layout, job, TARGETS[wanted].rules)


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
        target = recognised(text) if name is None else target_of(name)
        if target.read is None:
            readable = ", ".join(t.format for t in TARGETS.values() if t.read)
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


def recognised(text: str) -> Target:
    """The target whose configuration the text looks like.

    Raises:
        InvalidInput: It looks like none.
    """
    for target in TARGETS.values():
        if target.recognises(text):
            return target
    readable = ", ".join(t.format for t in TARGETS.values() if t.read)
    raise InvalidInput("config", text[:60], f"looks like no configuration that is known; say its format: {readable}")


def _sendable(found: Imported) -> Imported:
    """With names that can be shown: JSON and Python can spell text that is no Unicode."""
    notes = (replace(note, setting=sendable(note.setting), detail=sendable(note.detail)) for note in found.notes)
    return replace(found, notes=tuple(notes), model_name=sendable(found.model_name))
