"""Target: one trainer's way to write a layout down, both directions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotuner.core.choices import ExportFormat
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.rule import Reason, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file that the trainer reads."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A layout in a trainer's words.

    Attributes:
        version: Release of the trainer whose words they are.
        arguments: For its command line, after whatever else stands there.
        files: What it reads; a launch may have both.
        environment: Variables that it must, or must not, have for this layout.
        unsaid: What the trainer cannot express; what would run in its place is in the message.
        defaults: What the layout does not say and was left as the trainer has it; sentences without full stops.
        usage: How to use it, as one line.
    """

    format: ExportFormat
    version: str
    arguments: tuple[str, ...] = ()
    files: tuple[ExportedFile, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    unsaid: tuple[Reason, ...] = ()
    defaults: tuple[str, ...] = ()
    usage: str = ""

    @property
    def command_line(self) -> str:
        """Variables, then arguments one to a line; empty where there are neither."""
        parts = [f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items()]
        if self.arguments:
            parts.append(" \\\n".join(_lines(self.arguments)) + "\n")
        return "".join(parts)

    @property
    def text(self) -> str:
        """All of it, to be pasted: variables, arguments one to a line, then the files."""
        return self.command_line + "\n".join(file.text for file in self.files)


def _lines(arguments: tuple[str, ...]) -> list[str]:
    """A flag and its values on one line, or an override."""
    lines: list[list[str]] = []
    for argument in arguments:
        if argument.startswith("--") or not lines or ("=" in argument and not lines[-1][0].startswith("--")):
            lines.append([])
        lines[-1].append(shlex.quote(argument))
    return [" ".join(line) for line in lines]


class NoteKind(StrEnum):
    """What a reader of an imported configuration should know of a setting."""

    ASSUMED = "assumed"  # it was not said; this is the trainer's default, or follows from the rest
    CHANGED = "changed"  # a layout cannot say it exactly; this is the nearest
    IGNORED = "ignored"  # it says nothing of a layout; the detail says why
    UNKNOWN = "unknown"  # nobody here knows what it means for a layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A setting of an imported configuration, and what became of it.

    Attributes:
        setting: As it was written, or the trainer's name of what was not.
        detail: A sentence without a full stop.
    """

    kind: NoteKind
    setting: str
    detail: str


class Notes(list[Note]):
    """What became of the settings of a configuration while it was read."""

    def add(self, kind: NoteKind, setting: str, detail: str) -> None:
        """Note what became of one setting."""
        self.append(Note(kind=kind, setting=setting, detail=detail))

    def assumed(self, setting: str, detail: str) -> None:
        """Note a value that nothing said."""
        self.add(NoteKind.ASSUMED, setting, detail)

    def changed(self, setting: str, detail: str) -> None:
        """Note a value that a layout cannot have."""
        self.add(NoteKind.CHANGED, setting, detail)

    def ignored(self, setting: str, detail: str) -> None:
        """Note a setting that says nothing of a layout."""
        self.add(NoteKind.IGNORED, setting, detail)

    def unknown(self, setting: str, detail: str) -> None:
        """Note a setting of which nobody here knows what it means for a layout."""
        self.add(NoteKind.UNKNOWN, setting, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A trainer's configuration, read.

    Attributes:
        version: Release whose words these seem to be; empty where nothing tells.
        num_ranks: As the configuration or the caller says; None: nothing does, and data-parallel degrees are the least
            that the rest needs.
        model: Where the configuration has its shapes.
        model_name: Where it names a model that the trainer knows.
        notes: What was assumed, changed and ignored.
    """

    format: ExportFormat
    layout: Layout
    version: str = ""
    num_ranks: int | None = None
    model: TransformerSpec | None = None
    model_name: str = ""
    seq_len: int | None = None
    global_batch_size: int | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One trainer's way to write a layout down.

    Attributes:
        version: Release whose words it writes.
        rules: Layouts that it cannot express break one of these. They read columns as every rule does: an export lists
            what its layout breaks, a sweep of such a trainer leaves out all that break any.
        elsewhere: Fields that neither break a rule nor are written: the user's own code decides them, so that a sweep
            holds each of them at one value.
        searched: Values that a sweep tries by default of fields whose usual ones it cannot say, or seldom.
        write: The layout in its words, without ``unsaid``, which follows from the rules.
        read: A configuration; the second argument is the number of ranks, where the caller knows it. Raises
            ``InvalidInput`` where a setting makes no sense. None: it is not read back.
        recognises: Whether a text looks like a configuration of this trainer.
    """

    format: ExportFormat
    version: str
    rules: tuple[Rule, ...]
    elsewhere: frozenset[str]
    write: Callable[[Job, Layout], Export]
    searched: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    read: Callable[[str, int | None], Imported] | None = None
    recognises: Callable[[str], bool] = lambda text: False
