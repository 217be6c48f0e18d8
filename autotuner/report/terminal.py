"""Reports and tables as rich prints them in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from autotuner.report.report import Cell, Column, LayoutWords, Lines, Quantity, Report, Section, Table
from autotuner.report.words import has_wide_interval, quantity

_UNBOUNDED_COLUMNS = 10_000


def render(report: Report) -> RenderableType:
    """The headline, then the sections with an empty line between two of them."""
    return Group(Text(report.headline, style="bold"), *_sections(report.sections))


def _sections(sections: Sequence[Section]) -> Iterator[RenderableType]:
    for place, section in enumerate(sections):
        if place:
            yield Text()
        if section.title:
            yield Text(section.title)
        for block in section.blocks:
            match block:
                case Table():
                    yield _table(block)
                case Lines():
                    yield from (Text(line, style="dim" if block.is_quiet else "") for line in block.items)


def _table(table: Table) -> RenderableType:
    one_notation = has_wide_interval(cell for row in table.rows for cell in row)
    of_layouts = next((at for at, cell in enumerate(table.rows[0]) if isinstance(cell, LayoutWords)), None)
    if of_layouts is None:
        grid = plain_table(*table.columns)
        for row in table.rows:
            grid.add_row(*(_text(cell, by_ends=one_notation) for cell in row))
        return grid
    rows = []
    for row in table.rows:
        texts = [_text(cell, by_ends=one_notation) for cell in row]
        layout = row[of_layouts]
        remarks = layout.remarks if isinstance(layout, LayoutWords) else ()
        keys, cells = tuple(texts[:of_layouts]), tuple(texts[of_layouts + 1 :])
        rows.append(LayoutRow(keys=keys, layout=texts[of_layouts], remarks=remarks, cells=cells))
    return LayoutTable(keys=tuple(table.columns[:of_layouts]), heads=tuple(table.columns[of_layouts + 1 :]), rows=rows)


def _text(cell: Cell, *, by_ends: bool) -> str:
    match cell:
        case Quantity():
            return quantity(cell, by_ends=by_ends)
        case LayoutWords():
            return cell.words
        case _:
            return cell


# ------------------------------------------------------------------ tables
_LAYOUT = Column("layout", is_number=False, may_wrap=True)

_WORDS = (
    *("why", "state", "name", "source", "part", "limited by", "time goes to"),
    *("accelerator", "runs on", "last check", "link between", "described as", "kind", "queues", "answer"),
    *("token", "may", "at most", "made", "last used", "counts"),
    *("phase", "way", "cluster", "sweep", "for", "change", "up to layer"),
    "a million tokens take",
    *("posts to", "wants", "format", "delivery", "webhook", "announced", "what", "last answer"),
)
"""Columns of words, of tables that give names alone; all others hold numbers."""

_WRAPPED = (
    *("why", "source", "limited by", "time goes to", "answer", "wants", "what", "last answer", "at most", "way"),
    "a million tokens take",
)
"""Columns that give way where the terminal is narrow, of tables that give names alone."""


def _column(given: str | Column) -> Column:
    if isinstance(given, Column):
        return given
    return _LAYOUT if given == "layout" else Column(given, is_number=given not in _WORDS, may_wrap=given in _WRAPPED)


def plain_table(*columns: str | Column) -> Grid:
    """An empty table: columns of words flush left, columns of numbers flush right."""
    table = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in map(_column, columns):
        justify = "right" if column.is_number else "left"
        table.add_column(column.name, justify=justify, no_wrap=not column.may_wrap, overflow="fold")  # type: ignore[arg-type]
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRow:
    """A layout with what there is to know of it."""

    keys: tuple[str, ...]
    """What it is called: rank, trial."""
    layout: str
    """Its words."""
    remarks: tuple[str, ...] = ()
    """Lines below these."""
    cells: tuple[str, ...]
    """One for each head of the table, of one or several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTable:
    """Layouts one below the other, with a column for each of ``keys`` and ``heads``; the last of these may wrap.

    Where the terminal is too narrow for a line each, a layout has a line of its own above its cells, so that it can be
    copied in one piece. Words that all rows share are dim.
    """

    keys: tuple[str | Column, ...]
    heads: tuple[str | Column, ...]
    rows: Sequence[LayoutRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's hook."""
        table = self._in_columns()
        unbounded = options.update(width=_UNBOUNDED_COLUMNS)
        fits = Measurement.get(console, unbounded, table).maximum <= options.max_width
        yield table if fits else self._above_cells()

    def _in_columns(self) -> Grid:
        table = plain_table(*self.keys, _LAYOUT, *self.heads)
        for row in self.rows:
            table.add_row(*row.keys, self._name(row), *row.cells)
        return table

    def _above_cells(self) -> Grid:
        table = plain_table(*self.keys)
        columns = [_column(head) for head in self.heads]
        names = tuple(column.name for column in columns)
        widths = _widths([names, *(row.cells for row in self.rows)])
        heads = [_cells(names, columns, widths)] if columns else []
        table.add_column(Group("layout", *heads), overflow="fold")
        for row in self.rows:
            cells = [_cells(row.cells, columns, widths)] if any(row.cells) else []
            table.add_row(*row.keys, Group(self._name(row), *cells))
        return table

    def _name(self, row: LayoutRow) -> Text:
        return Text("\n").join([_dimmed(row.layout, self._common()), *map(Text, row.remarks)])

    def _common(self) -> Collection[str]:
        """Words that all rows share; none where there is one row."""
        words = [row.layout.split() for row in self.rows]
        return set(words[0]).intersection(*words[1:]) if len(words) > 1 else ()


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Of each column but the last, which takes what is left."""
    columns = list(zip(*lines, strict=True))[:-1]
    return [max(cell_len(line) for cell in column for line in cell.splitlines() or [""]) for column in columns]


def _dimmed(layout: str, common: Collection[str]) -> Text:
    words = (Text(word, style="dim" if word in common else "") for word in layout.split())
    return Text(" ").join(words)


def _cells(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> RenderableType:
    """The cells of one row, as wide as those of the others."""
    row = Grid.grid(padding=(0, 2, 0, 0))
    for column, width in zip(columns, [*widths, None], strict=True):
        like = plain_table(column).columns[0]
        row.add_column(justify=like.justify, no_wrap=like.no_wrap, width=width, overflow="fold")
    row.add_row(*cells)
    return row
