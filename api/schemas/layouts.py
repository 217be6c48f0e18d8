"""Layouts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from autotuner.core.layout import Layout
from autotuner.export.target import Note
from autotuner.search.results.comparison import LETTERS, Beside, Contender, Figures, Part, Shift, SideBySide


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
