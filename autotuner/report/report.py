"""A report: what one result says to people, once, for terminals, pages and Markdown.

A report holds values with their units, not text: a renderer writes ``Quantity(0.413, "share")`` as ``41.3 %``. One
function for each type of result makes its report, and ``terminal``, ``html`` and ``markdown`` render it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from autotuner.core.layout import Layout
from autotuner.report.charts import CellPicture, Chart, Glyph, RangeAxis, Unit
from autotuner.report.scale import Scale

Source = Literal["measured", "simulated", "estimated", "predicted"]
"""Origin of a number."""


# ------------------------------------------------------------------ cells
@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number with its unit, its interval, and its source (measured, simulated, estimated or predicted)."""

    value: float | None
    """Value in the base unit: seconds, bytes, 0..1. None: not known, written as a dash."""
    unit: Unit
    low: float | None = None
    high: float | None = None
    """Ends of the interval; None: not known."""
    source: Source | None = None
    is_exact: bool = False
    """Write every digit that a comparison needs: ``1,004 tokens/s``."""
    beside: str = ""
    """Words behind the number and its interval, in small letters: ``of 85.5 GB``."""


def measured(
    value: float | None, unit: Unit, half: float | None = None, source: Source = "measured", *, is_exact: bool = False
) -> Quantity:
    """Return a number with the interval value ± half; the interval does not go below 0.

    Args:
        value: Value in the base unit; None: not known.
        unit: Unit of the value.
        half: Half the width of the interval; None: not known.
        source: Source of the value.
        is_exact: True if every digit that a comparison needs is written.
    """
    if value is None or half is None:
        return Quantity(value=value, unit=unit, source=source, is_exact=is_exact)
    return Quantity(
        value=value, unit=unit, low=max(0.0, value - half), high=value + half, source=source, is_exact=is_exact
    )


def predicted(
    value: float | None, unit: Unit, relative_error: float | None = None, highest: float | None = None
) -> Quantity:
    """Return a predicted number with an interval that is a factor below and above it.

    Args:
        value: Value in the base unit; None: not known.
        unit: Unit of the value.
        relative_error: Half-width e of the interval from value / (1 + e) to value x (1 + e); None: not known.
        highest: Largest value of the interval's upper end, such as the peak of a precision; None: no limit, or 1 for a
            share.
    """
    if value is None or relative_error is None:
        return Quantity(value=value, unit=unit, source="predicted")
    if highest is None:
        highest = max(1.0, value) if unit == "share" else math.inf
    high = max(value, min(highest, value * (1 + relative_error)))
    return Quantity(value=value, unit=unit, low=value / (1 + relative_error), high=high, source="predicted")


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time in epoch seconds, and the time zone in which it is written."""

    at: float
    time_zone: str = "UTC"
    has_seconds: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A state or verdict in the words of its enum; pages show it as a coloured badge."""

    word: str
    look: str = ""
    """The state in whose colours it is shown; empty: its own."""


@dataclass(frozen=True, slots=True)
class Link:
    """Words that link to a page of the service: ``Link("its sweep", "sweeps", sweep.id)``."""

    words: str
    kind: str
    id: str = ""
    """Id of the object; empty: the link leads to all of the kind."""
    key: str = ""
    """Id of the link itself, by which a page finds the focus again after it is drawn anew."""
    query: Mapping[str, str | int] = field(default_factory=dict)
    """Query parameters of the page: ``{"state": "dead"}``."""
    part: str = ""
    """Key of the section that it leads to; empty: the page."""
    says: str = ""
    """Text for a pointer."""
    swaps: str = ""
    """Piece of the page that a script replaces where it is followed; empty: it leads to a page."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Words that are less important than the text around them; a page writes them in grey."""

    words: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Words that are more important than the text around them; a page writes them in bold."""

    words: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A short remark in a box: ``Chip("tied with the first", "tie")``."""

    words: str
    look: Literal["", "tie", "tight", "oom", "yours"] = ""


@dataclass(frozen=True, slots=True)
class Swatch:
    """The name of a part of a picture with a sample of its colour."""

    look: str
    """Class of its colour: ``forward``, ``activations``."""
    words: str


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in a ranking, marked if it is tied with the first place."""

    place: int
    is_tied: bool = False
    """True if the value cannot be told apart from the first one."""


@dataclass(frozen=True, slots=True)
class Words:
    """A layout in the notation of the command line, for copying."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button on a page; in a terminal, a command does the same."""

    words: str
    path: str
    """Path that the button posts to: ``tokens/k3v7q2mxn5/revoke``."""
    says: str
    """Text for screen readers, whose users do not see the row."""


Cell: TypeAlias = (
    str
    | Quantity
    | Moment
    | State
    | Link
    | Quiet
    | Strong
    | Chip
    | Swatch
    | Words
    | Rank
    | Layout
    | CellPicture
    | Button
    | None
)
Cells: TypeAlias = Cell | tuple[Cell, ...]
"""A cell, or several, which stand under each other on a page and beside each other in a terminal."""


# ------------------------------------------------------------------ blocks
@dataclass(frozen=True, slots=True)
class Figure:
    """A number or word with its name."""

    name: str
    value: Cells
    is_first: bool = False
    """The figure that matters most; a page shows it large, and those beside it larger than others."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its head, and how its cells are shown."""

    name: str
    """Head of the column."""
    is_number: bool = True
    """Set flush right."""
    may_wrap: bool = False
    """Gives way where there is little room; a number is never cut."""
    is_minor: bool = False
    """True for a column that a phone leaves out."""
    scale: Scale | None = None
    """Unit, which the head names, and number of digits of all numbers of the column; None: each number has its own."""
    group: str = ""
    """Head above this column and its neighbours of the same group; a table with groups is as wide as its cells."""
    is_long: bool = False
    """A page leaves it out, since it would leave no room for the others."""
    is_drawn: bool = False
    """True if the cells are pictures of a neighbour's numbers; a terminal leaves them out."""
    sort: Link | None = None
    """Link to the same page sorted by this column; None: the column cannot be sorted."""
    order: Literal["", "ascending", "descending"] = ""
    """Order of the table by this column at present."""
    axis: RangeAxis | None = None
    """Axis that the column's pictures share; its marks stand in the head."""
    is_action: bool = False
    """True if the cells are buttons; a terminal leaves them out."""
    look: Literal["", "main", "rank", "trial", "degree", "choices"] = ""
    """Degrees and choices are parts of a layout, which a terminal writes in words; the main columns stand out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows with named columns; the first cell of a row names the row. At most one column holds layouts."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cells]]
    caption: str = ""
    if_empty: str = ""
    """Text shown in place of a table without rows."""
    name: str = ""
    """Name of the table's content for screen readers; empty: the title of its section."""
    is_compact: bool = False
    """True for low rows, which remain rows on a phone. A row whose first cell is ``Strong`` is the sum of the
    others."""
    look: Literal["", "ranking", "untried"] = ""
    trials: Sequence[int | None] = ()
    """Number of the trial of each row, by which a brush finds it."""
    best_row: int | None = None
    """The row that stands out."""
    source: Source | None = None
    """Source of the numbers that the caption names, so that the cells do not repeat it."""

    @property
    def told(self) -> Sequence[tuple[int, Column]]:
        """The columns that can be written as text, each with its index: all except pictures and buttons."""
        return [
            (place, one)
            for place, one in enumerate(self.columns)
            if not (one.is_drawn or one.is_action or one.look in ("degree", "choices"))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Statements, each on its own line; quiet ones explain the block above them."""

    items: Sequence[Cells]
    """Cells of one statement stand behind each other."""
    is_quiet: bool = False
    is_list: bool = True
    """Statements are items of a list; else paragraphs."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text to copy: a command, flags, a configuration file."""

    text: str
    name: str = ""
    """Name of the file, or what else it is; empty: it needs none."""
    id: str = ""
    """Id of a text that is read rather than copied, such as a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One or more statements in a box that stands out."""

    words: Cells
    look: Literal["", "good", "warn", "bad"] = ""
    title: str = ""
    more: Sequence[Cells] = ()
    """Further statements, each on a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Blocks that a page hides until a reader opens them; a terminal shows them below their summary."""

    summary: Cells
    """Cells stand behind each other."""
    blocks: Sequence[Block]
    id: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A word for each day, such as the verdicts of nightly runs; a page draws weeks, and a terminal leaves it out."""

    days: Sequence[tuple[float, str, Link | None]]
    """Days in epoch seconds, each with its word and its link."""
    words: Sequence[str]
    """All possible words, for the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table with a cell for each pair of ends of links (nodes or accelerators, numbered from 0)."""

    cells: Sequence[Sequence[Cell]]
    """Rows of as many cells."""
    bad: Collection[tuple[int, int]] = ()
    """Rows and columns of the cells that are not as they should be."""
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Links to the same page with other filters, of which one is the present one."""

    name: str
    """Name of the choice."""
    links: Sequence[tuple[Link, bool]]
    """Links to the filters, each with True for the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager:
    """Links to the previous and the next page of a list that shows the newest first."""

    newer: Link | None
    older: Link | None

    @classmethod
    def of(cls, kind: str, number: int, *, is_last: bool, **query: str) -> Pager:
        """Return the links for one page of a list.

        Args:
            kind: Path of the list.
            number: Number of the page, from 1.
            is_last: True if there are no older entries.
            query: Query parameters of the list; empty ones are left out.
        """
        asked: dict[str, str | int] = {name: word for name, word in query.items() if word}
        before, after = (asked | {"number": number + step} for step in (-1, 1))
        return cls(
            newer=Link("Newer", kind, query=before) if number > 1 else None,
            older=None if is_last else Link("Older", kind, query=after),
        )


Picture = Calendar | Matrix | Chart | Choices | Pager
"""Blocks that terminals and Markdown leave out; the numbers of pictures stand beside them as text, too."""

Block: TypeAlias = "Sequence[Figure] | Table | Lines | Code | Notice | Folded | Picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks that belong together, with or without a title."""

    title: str = ""
    blocks: Sequence[Block]
    note: str = ""
    """Information that a reader needs to understand the blocks; it stands below the title."""
    id: str = ""
    """Id of its heading on a page; empty: made of the title."""
    glyphs: Sequence[tuple[Glyph, str]] = ()
    """Each kind of mark in the section's pictures with its meaning."""
    is_silent: bool = False
    """True if the title is for screen readers alone."""
    is_half: bool = False
    """True if the section stands beside the half section before or after it, if a page has room."""

    @property
    def key(self) -> str:
        """HTML id of the section's heading: ``id``, or else made of the title."""
        return self.id or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The description of one result: the answer in one line (``headline``), then sections with the details."""

    headline: str
    state: State | None = None
    facts: Sequence[Cell] = ()
    """A line of facts below the headline."""
    sections: Sequence[Section]

    def __getitem__(self, key: str) -> Section | None:
        """Return a section by its key; None where the report has none, since there is nothing to say."""
        return next((one for one in self.sections if one.key == key), None)
