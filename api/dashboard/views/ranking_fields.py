"""Columns of a ranking as heads and cells: figures with their digits and pictures on one axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from markupsafe import Markup

from api.dashboard.views.figures import Scaled
from autotuner.report.cells import draw_memory, draw_range, draw_range_axis
from autotuner.report.charts import MemoryCell, RangeAxis, RangeCell, Spread
from autotuner.search.results.trial_table import Column, TableRow

DEGREES = ("tp", "pp", "dp", "cp", "ep", "mb")

_MFU = ("mfu", "predicted_mfu")
_PEAKS = ("peak_bytes", "predicted_peak_bytes")
"""Columns whose first one has a picture beside it."""

_SPREAD = ("robust_mfu", "predicted_robust_mfu", "mfu", "predicted_mfu", "step_time_s", "predicted_step_time_s")
"""Columns whose interval stands beside the figure: that of a rate is the MFU's again."""

_WIDE = ("price_per_million_tokens", "time_to_loss_s")
"""Columns that a phone leaves out, unless they were chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a column."""

    name: str
    label: str
    meaning: str
    kind: str
    """How its cells look."""
    unit: str = ""
    """What its figures are counted in; empty where nothing is to say."""
    href: str = ""
    """The page sorted by it; by the other end where it is sorted by it already. Empty: nothing to sort."""
    direction: Literal["ascending", "descending", ""] = ""
    """In which it is sorted now; empty where it is not."""
    drawn: Markup | None = None
    """A picture in the place of words."""
    note: str = ""
    """Beside the words: what a bar is drawn of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell."""

    kind: str
    """How it looks: ``rank``, ``deg``, ``measured``, ``predicted``, ``number``, ``word``, ``plot`` or ``trial``."""
    label: str = ""
    """What it is called where no head stands above it, on a phone."""
    text: str = ""
    """Empty in a cell that is drawn."""
    spread: str = ""
    """``± 0.4``; empty where it is not known."""
    drawn: Markup | None = None
    """A picture."""
    is_faint: bool = False
    """A degree of 1."""
    is_wide: bool = False
    """It is shown beside a desk alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A head, and what stands below it in each row."""

    head: Head
    cell: Callable[[TableRow], Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What the pictures of all rows share."""

    mfu: RangeAxis
    limit_bytes: float
    """What a rank may use."""
    most_bytes: float

    @classmethod
    def of(cls, rows: Sequence[TableRow], best: TableRow | None, limit_bytes: float) -> Axes:
        """Room for the rows that are shown, and for the best of all."""
        spreads = [each for row in rows for each in (_predicted(row), _reached(row)) if each is not None]
        best_mfu = best.reached.mfu if best and best.reached else None
        peaks = [row.peak_bytes or row.prediction.memory.total_bytes for row in rows]
        mfu = RangeAxis.around(spreads, best_mfu)
        return cls(mfu=mfu, limit_bytes=limit_bytes, most_bytes=max(peaks, default=0.0))


def _predicted(row: TableRow) -> Spread:
    return Spread.within_factor(row.prediction.mfu, row.prediction.relative_error)


def _reached(row: TableRow) -> Spread | None:
    return None if row.reached is None else Spread.within(row.reached.mfu, row.reached.mfu * (row.step_error or 0.0))


def fields_of(
    columns: Sequence[Column], rows: Sequence[TableRow], axes: Axes, *, chosen: bool, heads: Callable[[Column], Head]
) -> tuple[Field, ...]:
    """What the table shows of the columns, pictures beside the first MFU and the first peak.

    Args:
        columns: Those that are asked for.
        rows: All rows of the table, so that digits do not change from page to page.
        axes: What pictures share.
        chosen: Somebody chose the columns: what says nothing stays, too.
        heads: Makes the head of a column, but for its unit.
    """
    shown = [column for column in columns if chosen or _says_something(column, rows)]
    return tuple(field for column in shown for field in _fields(column, rows, axes, shown, heads, chosen=chosen))


def _says_something(column: Column, rows: Sequence[TableRow]) -> bool:
    if not rows or column.name not in ("ep", "cp", *_WIDE, "mfu", "peak_bytes", "rank", "trial"):
        return True
    values = {column.value(row) for row in rows}
    return values != {1} if column.name in ("ep", "cp") else values != {None}


def _fields(
    column: Column,
    rows: Sequence[TableRow],
    axes: Axes,
    shown: Sequence[Column],
    heads: Callable[[Column], Head],
    *,
    chosen: bool,
) -> Iterator[Field]:
    scaled = Scaled.of(column.unit, (_number(column.value(row)) for row in rows)) if column.is_figure else None
    head = heads(column)
    unit = scaled.unit if scaled and column.unit != "per_s" else ""
    yield Field(
        head=replace(head, unit=unit),
        cell=lambda row: _cell(column, row, scaled, is_wide=column.name in _WIDE and not chosen),
    )
    if column.name == _first(_MFU, shown):
        yield _mfu_field(axes)
    if column.name == _first(_PEAKS, shown) and (chosen or axes.most_bytes >= 0.1 * axes.limit_bytes):
        yield _memory_field(axes)


def _first(names: Iterable[str], shown: Sequence[Column]) -> str | None:
    every = [column.name for column in shown]
    return next((name for name in names if name in every), None)


def _mfu_field(axes: Axes) -> Field:
    head = Head(name="mfu_drawn", label="MFU, drawn", meaning="", kind="plot", drawn=draw_range_axis(axes.mfu))
    return Field(
        head=head,
        cell=lambda row: Cell(
            kind="plot",
            drawn=draw_range(
                RangeCell(
                    axis=axes.mfu,
                    predicted=_predicted(row),
                    reached=_reached(row),
                    is_simulated=row.source == "simulated",
                )
            ),
        ),
    )


def _memory_field(axes: Axes) -> Field:
    note = Scaled.of("bytes", [axes.limit_bytes])
    head = Head(
        name="memory_drawn",
        label="memory, drawn",
        meaning="",
        kind="plot",
        note=f"of {note(axes.limit_bytes)} {note.unit}",
    )
    return Field(
        head=head,
        cell=lambda row: Cell(
            kind="plot",
            is_wide=True,
            drawn=draw_memory(
                MemoryCell(
                    limit_bytes=axes.limit_bytes,
                    predicted_bytes=row.prediction.memory.total_bytes,
                    reached_bytes=row.peak_bytes,
                )
            ),
        ),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _cell(column: Column, row: TableRow, scaled: Scaled | None, *, is_wide: bool) -> Cell:
    value = column.value(row)
    if scaled is not None:
        error = column.error(row) if column.error and column.name in _SPREAD else None
        is_rate = column.unit == "per_s"
        return Cell(
            kind=_kind(column, row),
            label=f"{column.label}, {scaled.unit}" if scaled.unit and not is_rate else column.label,
            text=f"{scaled(_number(value))} {scaled.unit}".rstrip() if is_rate else scaled(_number(value)),
            spread=scaled.spread(_number(value), error),
            is_wide=is_wide,
        )
    text = "–" if value is None else str(value)
    if column.name in DEGREES:
        return Cell(kind="deg", label=column.label, text=text, is_faint=value == 1)
    return Cell(kind=_plain_kind(column), label=column.label, text=text)


def _plain_kind(column: Column) -> str:
    """How a value looks that is no figure."""
    if column.name in ("rank", "trial", "layout"):
        return column.name
    return "word" if column.unit == "word" else "number"


def _kind(column: Column, row: TableRow) -> str:
    """How a figure looks: ink and heavy what the table is about, pencil what is predicted."""
    if column.name.startswith("predicted") or (row.trial is None and column.name != "price_per_million_tokens"):
        return "predicted"
    return row.source if column.name in ("value", "mfu", "robust_mfu") else "number"
