"""A table of layouts, each written whole so that it can be copied to ``--layout``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from autotuner.cli.console import plain_table

_UNBOUNDED_COLUMNS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRow:
    """A layout with what there is to know of it.

    Attributes:
        keys: What it is called: rank, trial.
        layout: Its words.
        remarks: Lines below these.
        cells: One for each head of the table, of one or several lines.
    """

    keys: tuple[str, ...]
    layout: str
    remarks: tuple[str, ...] = ()
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutTable:
    """Layouts one below the other, with a column for each of ``keys`` and ``heads``; the last of these may wrap.

    Where the terminal is too narrow for a line each, a layout has a line of its own above its cells, so that it can be
    copied in one piece. Words that all rows share are dim.
    """

    keys: tuple[str, ...]
    heads: tuple[str, ...]
    rows: Sequence[LayoutRow]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's hook."""
        table = self._in_columns()
        unbounded = options.update(width=_UNBOUNDED_COLUMNS)
        fits = Measurement.get(console, unbounded, table).maximum <= options.max_width
        yield table if fits else self._above_cells()

    def _in_columns(self) -> Table:
        table = plain_table(*self.keys, "layout", *self.heads)
        for row in self.rows:
            table.add_row(*row.keys, self._name(row), *row.cells)
        return table

    def _above_cells(self) -> Table:
        table = plain_table(*self.keys)
        widths = self._widths()
        heads = [_cells(self.heads, self.heads, widths)] if self.heads else []
        table.add_column(Group("layout", *heads), overflow="fold")
        for row in self.rows:
            cells = [_cells(row.cells, self.heads, widths)] if any(row.cells) else []
            table.add_row(*row.keys, Group(self._name(row), *cells))
        return table

    def _name(self, row: LayoutRow) -> Text:
        return Text("\n").join([_dimmed(row.layout, self._common()), *map(Text, row.remarks)])

    def _common(self) -> Collection[str]:
        """Words that all rows share; none where there is one row."""
        words = [row.layout.split() for row in self.rows]
        return set(words[0]).intersection(*words[1:]) if len(words) > 1 else ()

    def _widths(self) -> list[int]:
        """Of each column but the last, which takes what is left."""
        lines = [self.heads, *(row.cells for row in self.rows)]
        columns = list(zip(*lines, strict=True))[:-1]
        return [max(cell_len(line) for cell in column for line in cell.splitlines() or [""]) for column in columns]


def _dimmed(layout: str, common: Collection[str]) -> Text:
    words = (Text(word, style="dim" if word in common else "") for word in layout.split())
    return Text(" ").join(words)


def _cells(cells: Sequence[str], heads: Sequence[str], widths: Sequence[int]) -> RenderableType:
    """The cells of one row, as wide as those of the others."""
    row = Table.grid(padding=(0, 2, 0, 0))
    for head, width in zip(heads, [*widths, None], strict=True):
        like = plain_table(head).columns[0]
        row.add_column(justify=like.justify, no_wrap=like.no_wrap, width=width, overflow="fold")
    row.add_row(*cells)
    return row
