"""Two to four layouts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field

from api.schemas.exports import MAX_TEXT
from autotuner.core.layout import Layout
from autotuner.export.target import Note
from autotuner.search.results.side_by_side import LETTERS, Beside, Contender, Figures, Part, Shift, SideBySide


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """What is to be compared: two to four in all.

    Attributes:
        of: Ids of trials, ids of sweeps (their best trial), addresses of the page that explores a layout
            (``/explore?model=…&layout=…``), or layouts in words of the job of the first.
        flags: A trainer's configuration, as of ``/imports``: its layout in the job of the first. It is never run.
    """

    of: Annotated[tuple[Annotated[str, Field(max_length=2000)], ...], Field(max_length=8)]
    flags: Annotated[str, Field(max_length=MAX_TEXT)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLayout:
    """One of the layouts.

    Attributes:
        letter: As sentences call it.
        of: What names it again.
        label: The layout in short.
        trial_id: Of the trial that ran it; null of one that only is predicted.
        figures: What it reaches, measured where ``source`` says so.
        beside: How far it lies behind the fastest; null of the fastest.
        parts: Where its step goes; ``parts_are`` of the comparison says whether that was measured.
        notes: What was assumed, changed and ignored of flags.
    """

    letter: str
    of: str
    label: str
    layout: Layout
    trial_id: str | None
    figures: Figures
    beside: Beside | None
    parts: tuple[Part, ...]
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutComparison:
    """What differs between layouts, which is faster and whether by more than noise, and through which parts.

    Attributes:
        heading: The outcome in one sentence without a full stop.
        said: Whether differences exceed noise, and why they are: sentences without full stops.
        fastest: Letter of the fastest.
        is_one_job: All are of one model, workload and cluster: then rates are tokens per second, else MFU.
        differing: Fields of a layout in which they differ; ``data_parallel_degree`` for both of its parts.
        parts_are: What the parts are: ``measured``, ``simulated`` or ``predicted``.
        shifts: From the parts of the slowest to those of the fastest, the largest first.
    """

    heading: str
    said: tuple[str, ...]
    fastest: str
    is_one_job: bool
    differing: tuple[str, ...]
    parts_are: str
    shifts: tuple[Shift, ...]
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
