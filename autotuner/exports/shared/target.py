"""Target: one trainer's functions to write a layout as a configuration and to read it back."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.core.choices import ExportFormat
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import ModelSize, TransformerSpec
from autotuner.core.rules.rule import Reason, Rule
from autotuner.core.value import derived, value

_STACKS: Mapping[ExportFormat, str] = {
    ExportFormat.MEGATRON_LM: "megatron-core",
    ExportFormat.MEGATRON_BRIDGE: "megatron-bridge",
    ExportFormat.NEMO: "nemo",
    ExportFormat.TORCHTITAN: "torchtitan",
    ExportFormat.TORCHTITAN_CONFIG: "torchtitan",
}
"""Software stack of the catalog for each export format; other formats are run by plain PyTorch."""


def stack_of(name: ExportFormat) -> str:
    """Return the catalog's software stack that comes closest to the trainer of an export format, by name.

    Predictions for the format use this stack.
    """
    return _STACKS.get(name, "torch")


def format_of(stack: str) -> ExportFormat:
    """Return the usual export format of a software stack: that of its trainer, or arguments for a user's own loop."""
    return next((name for name, one in _STACKS.items() if one == stack), ExportFormat.ARGUMENTS)


@value
class ExportedFile:
    """A file of an export, with the name under which the trainer looks for it."""

    name: str
    text: str


@value
class Export:
    """A layout written as a trainer's configuration: arguments, files and environment variables."""

    format: ExportFormat
    layout: Layout
    version: str
    """Release of the trainer that the export is for."""
    arguments: tuple[str, ...] = ()
    """Arguments to append to the trainer's command line."""
    files: tuple[ExportedFile, ...] = ()
    """Files that the trainer reads. A launch may have both files and arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables and the values that they must have in a launch of this layout."""
    unsupported: tuple[Reason, ...] = ()
    """Options that the trainer cannot express. Each message says what would run instead."""
    left_to_trainer: tuple[str, ...] = ()
    """Settings that the layout does not determine, so that they keep the trainer's defaults; as sentences without full
    stops."""
    usage: str = ""
    """One line that says how to use the export."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``: its degrees above 1 and its non-default options."""
        return str(self.layout)

    @property
    def command_line(self) -> str:
        """The lines that set environment variables, then the arguments, one per line; empty if there are neither."""
        parts = [f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items()]
        if self.arguments:
            parts.append(" \\\n".join(argument_lines(self.arguments)) + "\n")
        return "".join(parts)

    @property
    @derived
    def text(self) -> str:
        """The whole export as one text to paste: environment variables, arguments one per line, then the files."""
        return self.command_line + "\n".join(file.text for file in self.files)


def argument_lines(arguments: Sequence[str], word: Callable[[str], str] = shlex.quote) -> list[str]:
    """Return one line of a shell script for each flag with its values, or for each override.

    Args:
        arguments: The arguments of a command.
        word: Function that writes one argument for the shell.
    """
    lines: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") or not lines or ("=" in argument and not lines[-1][0].startswith("--")):
            lines.append([])
        lines[-1].append(word(argument))
    return [" ".join(line) for line in lines]


class NoteKind(StrEnum):
    """The way in which an import treated a setting: it assumed, changed or ignored the value, or did not know it."""

    ASSUMED = "assumed"  # the setting was missing; the trainer's default, or a value computed from others, was assumed
    CHANGED = "changed"  # a layout cannot express the value; the nearest one was taken
    IGNORED = "ignored"  # the setting does not affect a layout; the detail says why
    UNKNOWN = "unknown"  # the meaning of the setting for a layout is unknown


@value
class Note:
    """A note on a setting of an imported configuration: whether its value was assumed, changed, ignored or unknown."""

    kind: NoteKind
    setting: str
    """The setting as it was written, or the trainer's name of a setting that was not written."""
    detail: str
    """Description of what happened to the setting, as a sentence without a full stop."""


class Notes(list[Note]):
    """The notes that an import collects on the settings of a configuration, with one note per setting at most."""

    def add(self, kind: NoteKind, setting: str, detail: str) -> None:
        """Add a note on one setting for the user: what the import did with it (``kind``), and why (``detail``)."""
        self.append(Note(kind=kind, setting=setting, detail=detail))

    def assumed(self, setting: str, detail: str) -> None:
        """Add a note on a value that was assumed because the configuration does not set it."""
        self.add(NoteKind.ASSUMED, setting, detail)

    def changed(self, setting: str, detail: str) -> None:
        """Add a note on a value that was changed because a layout cannot express it."""
        self.add(NoteKind.CHANGED, setting, detail)

    def ignored(self, setting: str, detail: str) -> None:
        """Add a note on a setting that was ignored because it does not affect the layout."""
        self.add(NoteKind.IGNORED, setting, detail)

    def unknown(self, setting: str, detail: str) -> None:
        """Add a note on a setting that the import does not know, so that its effect on the layout is unclear."""
        self.add(NoteKind.UNKNOWN, setting, detail)


@value
class Imported:
    """The result of an import: the layout in a trainer's configuration, with notes on the configuration's settings."""

    format: ExportFormat
    layout: Layout
    version: str = ""
    """Release of the trainer that the text seems to be for; empty if that cannot be recognised."""
    num_ranks: int | None = None
    """Number of ranks that the configuration or the caller gives. None: neither gives it, and the data-parallel degrees
    are the smallest that fit the other degrees."""
    model: TransformerSpec | None = None
    """Model that the configuration describes; None if the configuration does not contain its shapes."""
    model_name: str = ""
    """Name of the model, if the configuration names a model that the trainer knows."""
    seq_len: int | None = None
    global_batch_size: int | None = None
    notes: tuple[Note, ...] = ()
    """Notes about settings that were missing and assumed, changed to the nearest value that a layout can express, or
    ignored."""

    @property
    @derived
    def label(self) -> str:
        """Name of the layout, such as ``tp2 pp4 1f1b mb1``, which every command accepts.

        It shows the degrees above 1 and the options that differ from their defaults.
        """
        return str(self.layout)

    @property
    @derived
    def stack(self) -> str:
        """The name of the catalog's software stack that comes closest to the trainer, and is used for predictions."""
        return stack_of(self.format)

    @property
    @derived
    def model_size(self) -> ModelSize | None:
        """The model's number of parameters, all and active per token; None if the configuration has no model."""
        return ModelSize.of(self.model) if self.model else None


@value
class FormatLimit:
    """A limit of an export format: values of one field that the trainer's configuration cannot express."""

    rule: str
    """Name of the rule. An export lists the rules that its layout breaks, and says what would run instead."""
    field: str
    """Field that the rule is about: a field of a layout, or a path of the job (``model.experts``)."""


@value
class Format:
    """The description of a trainer's configuration format for users: its release, and the options it cannot express."""

    format: ExportFormat
    version: str
    """Release of the trainer that is written for."""
    is_read: bool
    """True if a configuration in this format can be imported."""
    rules: tuple[FormatLimit, ...]
    """Rules for options that this format cannot express."""
    decided_elsewhere: tuple[str, ...]
    """Fields of a layout that the trainer's user decides in code. They are not written, and no value of them is
    refused."""

    @property
    @derived
    def stack(self) -> str:
        """The name of the software stack in the catalog with which layouts in this format are predicted."""
        return stack_of(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A trainer to which layouts can be exported: its rules, and functions that write and read its configuration."""

    format: ExportFormat
    version: str
    """Release of the trainer that the target writes for."""
    rules: tuple[Rule, ...]
    """Rules that a layout breaks if the trainer cannot express it. An export lists the broken rules of its layout; a
    sweep with this trainer leaves out all layouts that break any rule."""
    decided_elsewhere: frozenset[str]
    """Fields that the user's own code decides. They are not written and break no rule; a sweep keeps each of them at
    one value."""
    write: Callable[[Job, Layout], Export]
    """A function that writes the layout as an export, without ``unsupported``, which is computed from the rules."""
    default_space: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Values that a sweep tries by default, for fields whose usual values the trainer cannot express or seldom uses."""
    read: Callable[[str, int | None], Imported] | None = None
    """A function that reads a configuration; its second argument is the number of ranks, if the caller knows it. It
    raises ``InvalidInput`` for a setting that is not valid. None: the format cannot be read."""
    recognises: Callable[[str], bool] = lambda text: False
    """A function that returns True if a text looks like a configuration of this trainer."""

    @property
    def described(self) -> Format:
        """Return the description of this trainer's format: its release, and the options that it cannot express."""
        return Format(
            format=self.format,
            version=self.version,
            is_read=self.read is not None,
            rules=tuple(FormatLimit(rule=rule.name, field=rule.field) for rule in self.rules),
            decided_elsewhere=tuple(sorted(self.decided_elsewhere)),
        )
