"""Renders reports and tables in a terminal, with Rich."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from autotuner.core.layout import Layout
from autotuner.report.charts import BarCell, GrowthCell, MemoryCell, RangeCell
from autotuner.report.report import (
    Block,
    Button,
    Cell,
    Cells,
    Chip,
    Code,
    Column,
    Figure,
    Folded,
    Lines,
    Link,
    Moment,
    Notice,
    Picture,
    Quantity,
    Quiet,
    Rank,
    Report,
    Section,
    State,
    Strong,
    Swatch,
    Table,
    Words,
)
from autotuner.report.scale import Scale
from autotuner.report.words import DASH, has_wide_interval, moment, plain, quantity, sentence, with_group

_UNBOUNDED_COLUMNS = 10_000


def render(report: Report) -> RenderableType:
    """Return a report for Rich to print: the headline, then the sections, separated by empty lines."""
    head = Text(report.headline, style="bold")
    look = (report.state.look or report.state.word) if report.state else ""
    state = [Text(plain(report.state.word), style=_STATE_STYLES.get(look, ""))] if report.state else []
    facts = [Text(line_of(report.facts))] if report.facts else []
    return Group(head, *state, *facts, *_sections(report.sections))


_STATE_STYLES = {
    **dict.fromkeys(("passed", "complete", "better_found", "baseline_set"), "bold green"),
    **dict.fromkeys(("failed", "regression", "could_not_run", "undecided", "no_baseline"), "bold red"),
}


def _sections(sections: Sequence[Section]) -> Iterator[RenderableType]:
    """Yield the sections that contain more than pictures."""
    said = [one for one in sections if any(not isinstance(block, Picture) for block in one.blocks)]
    for place, section in enumerate(said):
        if place:
            yield Text()
        if section.title:
            yield Text(section.title)
        if section.note:
            yield Text(section.note, style="dim")
        for block in section.blocks:
            yield from _block(block)


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Table() if block.rows:
            yield _table(block)
            if block.caption:
                yield Text(block.caption, style="dim")
        case Table():
            yield from (Text(words) for words in filter(None, [block.if_empty]))
        case Lines():
            yield from (Text(statement(one), style="dim" if block.is_quiet else "") for one in block.items)
        case Code():
            yield from (Text(name, style="bold") for name in filter(None, [block.name]))
            yield Text(block.text)
        case Notice():
            yield from (Text(title, style="bold") for title in filter(None, [block.title]))
            yield from (Text(_sentence(one)) for one in (block.words, *block.more))
        case Folded():
            yield Text(statement(block.summary))
            for inner in block.blocks:
                yield from _block(inner)
        case [Figure(), *_]:
            grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
            for figure in block:
                assert isinstance(figure, Figure), "a sequence of figures"
                grid.add_row(Text(figure.name, style="dim"), Text(beside(figure.value, named=figure.name)))
            yield grid


def statement(cells: Cells) -> str:
    """Return a statement of a report, which may consist of several cells, as one line of text."""
    return cells if isinstance(cells, str) else line_of(every(cells))


def _sentence(cells: Cells) -> str:
    return sentence(cells) if isinstance(cells, str) else line_of(every(cells))


def line_of(cells: Sequence[Cell]) -> str:
    """Return cells of a report as one line of text, joined by spaces; there is no space before punctuation."""
    line = ""
    for text in filter(None, map(text_of, cells)):
        line += text if not line or text[0] in ",;:." else f" {text}"
    return line


def text_of(
    cell: Cell, *, by_ends: bool | None = None, scale: Scale | None = None, named: str = ""
) -> str:  # one line for each kind
    """Return one cell of a report as text for a terminal, such as a number with its unit and its interval.

    Args:
        cell: The cell.
        by_ends: True if an interval of a share is written as its two ends; None: only if it is wide.
        scale: Unit and digits that the column shares; None: the number has its own unit.
        named: Head of the column, or name of the cell. If it contains "simulated", the cell does not repeat that word.
    """
    match cell:
        case None:
            return DASH
        case BarCell() | RangeCell() | MemoryCell() | GrowthCell() | Button():
            return ""
        case Quantity():
            is_told = cell.source != "simulated" or cell.value is None or "simulated" in named.lower()
            number = quantity(cell, by_ends=by_ends, scale=scale)
            return " ".join(filter(None, (number, cell.beside, "" if is_told else "simulated")))
        case Moment():
            return moment(cell.at, cell.time_zone, has_seconds=cell.has_seconds)
        case State():
            return plain(cell.word)
        case Link() | Quiet() | Strong() | Chip() | Swatch():
            return cell.words
        case Words():
            return cell.text
        case Rank():
            return f"{cell.place}{'=' if cell.is_tied else ''}"
    return str(cell)


def every(cells: Cells) -> tuple[Cell, ...]:
    """Return the cells that are written as text, from one cell or several cells at one place of a report.

    If a layout comes with the words that the command line accepts for it, these words are left out.
    """
    if not isinstance(cells, tuple):
        return (cells,)
    has_layout = any(isinstance(one, Layout) for one in cells)
    return tuple(one for one in cells if not (has_layout and isinstance(one, Words)))


def beside(cells: Cells, *, by_ends: bool | None = None, scale: Scale | None = None, named: str = "") -> str:
    """Return the cells at one place of a report as text, joined by commas; the arguments are those of ``text_of``."""
    return ", ".join(text_of(one, by_ends=by_ends, scale=scale, named=named) for one in every(cells))


def _table(table: Table) -> RenderableType:
    columns = [replace(column, name=with_group(column)) for _, column in table.written_columns]
    cells = [[row[place] for place, _ in table.written_columns] for row in table.rows]
    texts = list(zip(*(_texts(cells, place, one, table) for place, one in enumerate(columns)), strict=True))
    at = next((place for place, one in enumerate(cells[0]) if isinstance(every(one)[0], Layout)), None)
    if at is None:
        grid = plain_table(*columns)
        for text in texts:
            grid.add_row(*text)
        return grid
    rows = []
    for row, text in zip(cells, texts, strict=True):
        layout, *remarks = map(text_of, every(row[at]))
        rows.append(LayoutRow(keys=text[:at], layout=layout, remarks=tuple(remarks), cells=text[at + 1 :]))
    return LayoutTable(keys=tuple(columns[:at]), heads=tuple(columns[at + 1 :]), rows=rows)


def _texts(rows: Sequence[Sequence[Cells]], place: int, column: Column, table: Table) -> list[str]:
    """Return the cells of a column as text; all of them write intervals in the same way."""
    cells, named = [row[place] for row in rows], f"{column.name} {table.source or ''}"
    by_ends = has_wide_interval(one for those in cells for one in every(those))
    return [beside(one, by_ends=by_ends, scale=column.scale, named=named) for one in cells]


# ------------------------------------------------------------------ tables
_LAYOUT = Column("layout", is_number=False, may_wrap=True)

_WORDS = (
    *("why", "state", "name", "source", "part", "limited by", "time goes to"),
    *("accelerator", "runs on", "last check", "link between", "described as"),
    *("phase", "way", "cluster", "sweep", "for", "change", "up to layer"),
    "a million tokens take",
)
"""Columns of words, in tables whose columns have only names; all other columns hold numbers."""

_WRAPPED = (*("why", "source", "limited by", "time goes to", "way", "a million tokens take"),)
"""Columns that may wrap in a narrow terminal, in tables whose columns have only names."""


def _column(given: str | Column) -> Column:
    if isinstance(given, Column):
        return given
    return _LAYOUT if given == "layout" else Column(given, is_number=given not in _WORDS, may_wrap=given in _WRAPPED)


def plain_table(*columns: str | Column) -> Grid:
    """Return an empty table for Rich, with words aligned to the left and numbers aligned to the right.

    Args:
        columns: The columns; a text stands for a column of that name.
    """
    table = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in map(_column, columns):
        justify = "right" if column.is_number else "left"
        table.add_column(column.name, justify=justify, no_wrap=not column.may_wrap, overflow="fold")  # type: ignore[arg-type]
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRow:
    """A row of a ``LayoutTable`` in a terminal: a layout and the texts next to it."""

    keys: tuple[str, ...]
    """Values that identify the row, such as rank and trial."""
    layout: str
    """Layout in words."""
    remarks: tuple[str, ...] = ()
    """Lines below the row."""
    cells: tuple[str, ...]
    """One cell, with one or more lines, for each head of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTable:
    """A table of layouts, with a column for each of ``keys`` and ``heads``; the last column may wrap.

    If the terminal is too narrow, each layout has its own line above its cells, so that readers can copy the layout in
    one piece. Words that occur in all layouts are dim.
    """

    keys: tuple[str | Column, ...]
    heads: tuple[str | Column, ...]
    rows: Sequence[LayoutRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table for Rich: in columns if it fits, else with its cells stacked."""
        table = self._in_columns()
        unbounded = options.update(width=_UNBOUNDED_COLUMNS)
        fits = Measurement.get(console, unbounded, table).maximum <= options.max_width
        yield table if fits else self._above_cells(options.max_width)

    def _in_columns(self) -> Grid:
        table = plain_table(*self.keys, _LAYOUT, *self.heads)
        for row in self.rows:
            table.add_row(*row.keys, self._name(row), *row.cells)
        return table

    def _above_cells(self, most: int) -> Grid:
        table = plain_table(*self.keys)
        columns, lines = list(map(_column, self.heads)), [row.cells for row in self.rows]
        names = [column.name for column in columns]
        if self._width([names, *lines]) > most:  # leave out minor columns and break the heads
            kept = [place for place, column in enumerate(columns) if not column.is_minor]
            columns, names = [columns[place] for place in kept], [names[place].replace(" ", "\n") for place in kept]
            lines = [tuple(line[place] for place in kept) if line else () for line in lines]
        widths = _widths([names, *lines])
        heads = [_cells(names, columns, widths)] if columns else []
        table.add_column(Group("layout", *heads), overflow="fold")
        for row, line in zip(self.rows, lines, strict=True):
            cells = [_cells(line, columns, widths)] if any(line) else []
            table.add_row(*row.keys, Group(self._name(row), *cells))
        return table

    def _width(self, lines: Sequence[Sequence[str]]) -> int:
        """Return the number of characters of the widest row of keys and cells, with the spaces between them."""
        keys = [[_column(one).name for one in self.keys], *(row.keys for row in self.rows)]
        widths = [*_widths([(*line, "") for line in lines]), *_widths([(*line, "") for line in keys])]
        return sum(width + 2 for width in widths)

    def _name(self, row: LayoutRow) -> Text:
        return Text("\n").join([_dimmed(row.layout, self._common()), *map(Text, row.remarks)])

    def _common(self) -> Collection[str]:
        """Return the words of a layout that all rows share; empty if there is one row."""
        words = [row.layout.split() for row in self.rows]
        return set(words[0]).intersection(*words[1:]) if len(words) > 1 else ()


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column except the last, which takes the remaining space."""
    columns = list(zip(*lines, strict=True))[:-1]
    return [max(cell_len(line) for cell in column for line in cell.splitlines() or [""]) for column in columns]


def _dimmed(layout: str, common: Collection[str]) -> Text:
    words = (Text(word, style="dim" if word in common else "") for word in layout.split())
    return Text(" ").join(words)


def _cells(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> RenderableType:
    """Return the cells of one row, with the widths that all rows share."""
    row = Grid.grid(padding=(0, 2, 0, 0))
    for column, width in zip(columns, [*widths, None], strict=True):
        like = plain_table(column).columns[0]
        row.add_column(justify=like.justify, no_wrap=like.no_wrap, width=width, overflow="fold")
    row.add_row(*cells)
    return row
