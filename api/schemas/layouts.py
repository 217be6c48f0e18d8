"""Layouts in the words of trainers, trainers' configurations as layouts, and layouts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from autotuner.catalog.models import model_called, model_like
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import extended
from autotuner.core.layout import Layout
from autotuner.core.model import TransformerSpec
from autotuner.core.rules.rule import Reason
from autotuner.export import registry
from autotuner.export.target import Export, ExportedFile, Imported, Note, NoteKind, Target
from autotuner.search.predictions import ModelSize
from autotuner.search.results.comparison import LETTERS, Beside, Contender, Figures, Part, Shift, SideBySide

# Layouts in the words of trainers, and trainers' configurations as layouts.

MAX_TEXT = 1_000_000
"""Characters of a configuration; the longest that a trainer prints of itself has a twentieth."""

MAX_RANKS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutExport:
    """A layout in a trainer's words."""

    label: str
    """The layout in short."""
    layout: Layout
    format: ExportFormat
    version: str
    """Release of the trainer whose words they are."""
    text: str
    """All of it, to be pasted: variables, arguments one to a line, then the files."""
    arguments: tuple[str, ...]
    """For the trainer's command line, after whatever else stands there."""
    files: tuple[ExportedFile, ...]
    """What it reads; a launch may have both."""
    environment: dict[str, str]
    """Variables that it must have for this layout."""
    unsaid: tuple[Reason, ...]
    """What the trainer cannot express, and what would run in its place."""
    defaults: tuple[str, ...]
    """What the layout does not say and was left as the trainer has it; sentences without full stops."""
    usage: str
    """How to use it."""

    @classmethod
    def of(cls, layout: Layout, export: Export) -> Self:
        """The export with the layout that it says."""
        return extended(
            cls, export, label=str(layout), layout=layout, text=export.text, environment=dict(export.environment)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatRule:
    """A limit of a trainer's words."""

    rule: str
    """Name of the rule; an export lists those that its layout breaks, with what would run instead."""
    field: str
    """What the rule is about: a field of a layout, or the path of one of the job (``model.experts``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatView:
    """A trainer's words."""

    format: ExportFormat
    version: str
    """Release of the trainer whose words are written."""
    stack: str
    """Name of the software in the catalog that a layout read in them is predicted for, unless another is named."""
    is_read: bool
    """Whether a configuration in them can be imported."""
    rules: tuple[FormatRule, ...]
    """What cannot be said in them."""
    elsewhere: tuple[str, ...]
    """Fields of a layout that the trainer's user decides in code: neither written nor refused."""

    @classmethod
    def of(cls, target: Target) -> Self:
        """What is known of a target."""
        return cls(
            format=target.format,
            version=target.version,
            stack=registry.stack_of(target.format),
            is_read=target.read is not None,
            rules=tuple(FormatRule(rule=rule.name, field=rule.field) for rule in target.rules),
            elsewhere=tuple(sorted(target.elsewhere)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatList:
    """Formats that a layout can be written in."""

    items: tuple[FormatView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """A trainer's configuration to be read."""

    text: Annotated[str, Field(max_length=MAX_TEXT)]
    """Arguments, a script that holds them, a configuration file, or what a trainer printed of its arguments; at most
    1,000,000 characters. It is read, and never run."""
    format: ExportFormat | None = None
    """Whose words they are; null: found by what the text looks like."""
    num_ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)] | None = None
    """Ranks of the job, where you know them: most configurations do not say it, and data-parallel degrees follow from
    it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLayout:
    """A trainer's configuration, read."""

    format: ExportFormat
    version: str
    """Release whose words these seem to be; empty where nothing tells."""
    stack: str
    """Name of the software in the catalog that is nearest to the trainer."""
    label: str
    """The layout in short, in words that every command reads."""
    layout: Layout
    num_ranks: int | None
    """Null where neither the configuration nor the caller says it: data-parallel degrees are then the least that the
    rest needs."""
    model: TransformerSpec | None
    """Where the configuration has its shapes, or names a model of the catalog."""
    model_size: ModelSize | None
    """How large it is."""
    model_name: str
    """Where it names a model that the trainer knows."""
    seq_len: int | None
    global_batch_size: int | None
    notes: tuple[Note, ...]
    """What was assumed, since it was not said; changed to the nearest that a layout can say; or ignored."""

    @classmethod
    def of(cls, read: Imported) -> Self:
        """What was read, with what follows from it; a model that it names alone is the catalog's of that name."""
        known = model_called(read.model_name) if read.model is None else None
        model = known if read.model is None else model_like(read.model)
        return extended(
            cls,
            read,
            stack=registry.stack_of(read.format),
            label=str(read.layout),
            model=model,
            model_size=ModelSize.of(model) if model else None,
            notes=read.notes if known is None else (*read.notes, _taken(read.model_name, known)),
        )


def _taken(name: str, model: TransformerSpec) -> Note:
    return Note(kind=NoteKind.ASSUMED, setting=name, detail=f"the catalog's {model.name} is taken for it")


# Two to four layouts side by side.


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """What is to be compared: two to four in all."""

    of: Annotated[tuple[Annotated[str, Field(max_length=2000)], ...], Field(max_length=8)]
    """Ids of trials, ids of sweeps (their best trial), addresses of the page that explores a layout
    (``/explore?model=…&layout=…``), or layouts in words of the job of the first."""
    flags: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    """A trainer's configuration, as of ``/imports``: its layout in the job of the first. It is never run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLayout:
    """One of the layouts."""

    letter: str
    """As sentences call it."""
    of: str
    """What names it again."""
    label: str
    """The layout in short."""
    layout: Layout
    trial_id: str | None
    """Of the trial that ran it; null of one that only is predicted."""
    figures: Figures
    """What it reaches, measured where ``source`` says so."""
    beside: Beside | None
    """How far it lies behind the fastest; null of the fastest."""
    parts: tuple[Part, ...]
    """Where its step goes; ``parts_are`` of the comparison says whether that was measured."""
    notes: tuple[Note, ...] = ()
    """What was assumed, changed and ignored of flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutComparison:
    """What differs between layouts, which is faster and whether by more than noise, and through which parts."""

    heading: str
    """The outcome in one sentence without a full stop."""
    said: tuple[str, ...]
    """Whether differences exceed noise, and why they are: sentences without full stops."""
    fastest: str
    """Letter of the fastest."""
    is_one_job: bool
    """All are of one model, workload and cluster: then rates are tokens per second, else MFU."""
    differing: tuple[str, ...]
    """Fields of a layout in which they differ; ``data_parallel_degree`` for both of its parts."""
    parts_are: str
    """What the parts are: ``measured``, ``simulated`` or ``predicted``."""
    shifts: tuple[Shift, ...]
    """From the parts of the slowest to those of the fastest, the largest first."""
    items: tuple[ComparedLayout, ...]

    @classmethod
    def of(
        cls, found: SideBySide, contenders: Sequence[Contender], named: Sequence[str], notes: Sequence[tuple[Note, ...]]
    ) -> Self:
        """The comparison of these, with what named each and how its flags were read."""
        return cls(
            heading=found.heading,
            said=found.said,
            fastest=LETTERS[found.fastest],
            is_one_job=found.is_one_job,
            differing=found.options,
            parts_are=found.parts_are,
            shifts=found.shifts,
            items=tuple(_item(number, found, one, named, notes) for number, one in enumerate(contenders)),
        )


def _item(
    number: int, found: SideBySide, one: Contender, named: Sequence[str], notes: Sequence[tuple[Note, ...]]
) -> ComparedLayout:
    return ComparedLayout(
        letter=LETTERS[number],
        of=named[number],
        label=str(one.layout),
        layout=one.layout,
        trial_id=one.trial.id if one.trial else None,
        figures=found.figures[number],
        beside=found.beside[number],
        parts=found.parts[number],
        notes=notes[number],
    )
