"""A report: the content of one result, described once for terminals, pages and Markdown.

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
    """Value in the base unit (seconds, bytes, or 0..1 for a share). None: unknown, written as a dash."""
    unit: Unit
    low: float | None = None
    high: float | None = None
    """``low`` and ``high`` are the ends of the interval; None: not known."""
    source: Source | None = None
    is_exact: bool = False
    """True if all digits that a comparison needs are written: ``1,004 tokens/s``."""
    beside: str = ""
    """Words after the number and its interval, in small letters: ``of 85.5 GB``."""


def measured(
    value: float | None, unit: Unit, half: float | None = None, source: Source = "measured", *, is_exact: bool = False
) -> Quantity:
    """Return a measured number with the interval from value − ``half`` to value + ``half``, which does not go below 0.

    Args:
        value: Value in the base unit; None: not known.
        unit: Unit of the value.
        half: Half the width of the interval; None: not known.
        source: Source of the value.
        is_exact: True to write one more digit than usual, so that close values can be compared.
    """
    if value is None or half is None:
        return Quantity(value=value, unit=unit, source=source, is_exact=is_exact)
    return Quantity(
        value=value, unit=unit, low=max(0.0, value - half), high=value + half, source=source, is_exact=is_exact
    )


def predicted(
    value: float | None, unit: Unit, relative_error: float | None = None, highest: float | None = None
) -> Quantity:
    """Return a predicted number with the interval from value / (1 + e) to value x (1 + e).

    Args:
        value: Value in the base unit; None: not known.
        unit: Unit of the value.
        relative_error: The relative half-width e of the interval; None: not known.
        highest: Largest number that the upper end of the interval may have, such as the peak of a precision; None: 1
            for a share, and no limit for other units.
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
    """A state or verdict of a run or trial, such as ``failed``, in a report; pages show it as a coloured badge."""

    word: str
    look: str = ""
    """State whose colours are used; empty: those of this state."""


@dataclass(frozen=True, slots=True)
class Link:
    """Words in a report that link to a page of the service: ``Link("its sweep", "sweeps", sweep.id)``."""

    words: str
    kind: str
    id: str = ""
    """Id of the object; empty: the link leads to the list of this kind of object."""
    key: str = ""
    """Id of the link element, by which a page restores the focus after it was drawn again."""
    query: Mapping[str, str | int] = field(default_factory=dict)
    """Query parameters of the page: ``{"state": "dead"}``."""
    part: str = ""
    """Key of the section to which the link leads; empty: the whole page."""
    says: str = ""
    """Text of the tooltip."""
    swaps: str = ""
    """Id of the part of the page that a script replaces when the link is followed; empty: the link opens a page."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Words in a report that are less important than the text around them; a page writes them in grey."""

    words: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Words in a report that are more important than the text around them; a page writes them in bold."""

    words: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A short remark in a report, which a page shows in a box: ``Chip("tied with the first", "tie")``."""

    words: str
    look: Literal["", "tie", "tight", "oom", "yours"] = ""


@dataclass(frozen=True, slots=True)
class Swatch:
    """The name of a part of a picture with a sample of its colour, for a table that explains the picture."""

    look: str
    """Class of its colour: ``forward``, ``activations``."""
    words: str


@dataclass(frozen=True, slots=True)
class Rank:
    """A place in a ranking, from 1, marked if the entry is tied with the first place."""

    place: int
    is_tied: bool = False
    """True if the value does not differ measurably from the first one."""


@dataclass(frozen=True, slots=True)
class Words:
    """A layout in the notation of the command line, for copying."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button on a page. A terminal shows no buttons, because a command does the same."""

    words: str
    path: str
    """Path that the button posts to: ``tokens/k3v7q2mxn5/revoke``."""
    says: str
    """Text for screen readers, whose users do not see the row of the button."""


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
"""One cell, or several cells, which stand below each other on a page and side by side in a terminal."""


# ------------------------------------------------------------------ blocks
@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a report: a number or a word, and the name that stands next to it."""

    name: str
    value: Cells
    is_first: bool = False
    """True for the most important figure; a page shows it large, and the figures beside it larger than usual."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table in a report: its head, and how its cells are shown."""

    name: str
    """Head of the column."""
    is_number: bool = True
    """True if the column is aligned to the right."""
    may_wrap: bool = False
    """True if the column may become narrower when space is short; numbers are never cut."""
    is_minor: bool = False
    """True for a column that a phone leaves out."""
    scale: Scale | None = None
    """Unit and number of digits of all numbers in the column, shown in the head; None: each number has its own."""
    group: str = ""
    """Head above this column and its neighbours in the same group; a table with groups is only as wide as its cells."""
    is_long: bool = False
    """True if a page leaves the column out, because it would leave no room for the others."""
    is_drawn: bool = False
    """True if the cells are pictures of the numbers in another column; a terminal leaves them out."""
    sort: Link | None = None
    """Link to the same page sorted by this column; None: the column cannot be sorted."""
    order: Literal["", "ascending", "descending"] = ""
    """Present order of the table by this column; empty if it is sorted by another one."""
    axis: RangeAxis | None = None
    """Axis that the pictures of the column share; the head shows its marks."""
    is_action: bool = False
    """True if the cells are buttons; a terminal leaves them out."""
    look: Literal["", "main", "rank", "trial", "degree", "choices", "name"] = ""
    """Role of the column: main columns stand out; degrees and choices are parts of a layout, which a terminal shows as
    text. The head of a name column is a name, such as gh200; a page writes it without a capital."""


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
    """True if rows are low, also on a phone. A row whose first cell is ``Strong`` is the sum of the others."""
    look: Literal["", "ranking", "untried"] = ""
    trials: Sequence[int | None] = ()
    """Trial number of each row, by which a brush finds the row."""
    best_row: int | None = None
    """Index of the row that stands out; None: no row does."""
    source: Source | None = None
    """Source of all numbers, which the caption names, so that the cells do not repeat it."""

    @property
    def written_columns(self) -> Sequence[tuple[int, Column]]:
        """The columns that can be written as text, each with its index in the table.

        Columns of pictures and of buttons are left out.
        """
        return [
            (place, one)
            for place, one in enumerate(self.columns)
            if not (one.is_drawn or one.is_action or one.look in ("degree", "choices"))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Statements of a report, each on its own line; with ``is_quiet``, they explain the block above them."""

    items: Sequence[Cells]
    """The statements; the cells of one statement stand one after the other."""
    is_quiet: bool = False
    is_list: bool = True
    """True if the statements are items of a list; else they are paragraphs."""


@dataclass(frozen=True, slots=True)
class Code:
    """Text in a report for readers to copy, such as a command, flags or a configuration file."""

    text: str
    name: str = ""
    """Name of the file, or a title for the text; empty: no name is shown."""
    id: str = ""
    """Id of a text that people read but do not copy, such as a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One or more statements in a report that are shown in a box, because readers must not miss them."""

    words: Cells
    look: Literal["", "good", "warn", "bad"] = ""
    title: str = ""
    more: Sequence[Cells] = ()
    """Further statements, each on its own line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Blocks that a page hides until a reader opens them; a terminal shows them below their summary."""

    summary: Cells
    """Text that stays visible; its cells stand one after the other."""
    blocks: Sequence[Block]
    id: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A calendar with a word for each day, such as the verdict of a nightly run.

    A page draws the weeks; a terminal leaves the calendar out.
    """

    days: Sequence[tuple[float, str, Link | None]]
    """Days as epoch seconds, each with a word and a link."""
    words: Sequence[str]
    """All words that a day can have, for the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A square table of links with one cell for each pair of nodes, or each pair of accelerators, counted from 0."""

    cells: Sequence[Sequence[Cell]]
    """Rows of cells; all rows have the same length."""
    bad: Collection[tuple[int, int]] = ()
    """Row and column of each cell that shows a problem."""
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Links to the same page with other filters. One of them is marked as the present choice."""

    name: str
    """Name of the choice."""
    links: Sequence[tuple[Link, bool]]
    """Links to the possible filters, each with True if it is the present one."""


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
"""Blocks that terminals and Markdown leave out, because the numbers of pictures also stand beside them as text."""

Block: TypeAlias = "Sequence[Figure] | Table | Lines | Code | Notice | Folded | Picture"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report: blocks (tables, charts, texts) that belong together, with or without a title."""

    title: str = ""
    blocks: Sequence[Block]
    note: str = ""
    """Text below the title that a reader needs in order to understand the blocks."""
    id: str = ""
    """Id of the heading on a page; empty: derived from the title."""
    glyphs: Sequence[tuple[Glyph, str]] = ()
    """Each kind of mark in the section's pictures with its meaning."""
    is_silent: bool = False
    """True if only screen readers get the title."""
    is_half: bool = False
    """True if the section stands side by side with its neighbour when a page has room."""

    @property
    def key(self) -> str:
        """HTML id of the section's heading: the field ``id``, or an id made from the title if that field is empty."""
        return self.id or re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one result: the answer in one line (``headline``), then sections with the details."""

    headline: str
    state: State | None = None
    facts: Sequence[Cell] = ()
    """Facts that are shown on one line below the headline."""
    sections: Sequence[Section]

    def __getitem__(self, key: str) -> Section | None:
        """Return the section with this key; None if the report has no such section."""
        return next((one for one in self.sections if one.key == key), None)
