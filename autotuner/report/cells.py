"""Small pictures for the cells of a table, and the keys of pictures. The pictures of a column share one axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from autotuner.report.charts import Axis, BarCell, CellPicture, Glyph, MemoryCell, RangeAxis, RangeCell, Shares, stairs
from autotuner.report.drawing import Scale, circle, element, line, path, picture, rect, text

_BAR, _BAR_HEIGHT = 110, 28
"""Width and height in pixels of a cell with a bar."""


def silent(width: float, height: float, parts: Iterable[Markup]) -> Markup:
    """Return an SVG picture that screen readers skip; the same numbers must stand next to it as text.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        parts: Markup inside the picture.
    """
    view = f"0 0 {width} {height}"
    return element("svg", *parts, class_="cell", width=width, height=height, viewBox=view, aria_hidden="true")


def draw_cell(cell: CellPicture) -> Markup:
    """Return the small picture for a cell of a table: a bar, an interval, a memory peak or a line."""
    match cell:
        case BarCell():
            return silent(_BAR, _BAR_HEIGHT, _bar(cell))
        case RangeCell():
            return draw_range(cell)
        case MemoryCell():
            return draw_memory(cell)
    return sparkline(cell.values)


def _bar(cell: BarCell) -> Iterator[Markup]:
    low = -cell.most if cell.is_signed else 0.0
    x = Scale(Axis(title="", low=low, high=cell.most), 0, _BAR)
    start, end = x(0.0), x(cell.value)
    if cell.is_signed:
        yield line(start, 0, start, _BAR_HEIGHT, "axis")
    yield rect(min(start, end), 10, abs(end - start), 8, cell.look, radius=1)


_ROW = 36
"""Height of a row in pixels (``--row``). Vertical lines are drawn longer, so that they meet in taller rows, which cut
them off."""

_RANGE, _MEMORY = 160, 84
"""Widths in pixels of a cell with a range and of a cell with a memory bar."""

_EDGE = 5
_MOST_MARKS = 5
_LABEL = 36


def draw_range_axis(axis: RangeAxis) -> Markup:
    """Return the tick marks and labels of an axis that the pictures of a column share, for the head of the column."""
    x = _range_scale(axis)
    parts = [line(x(at), 15, x(at), 20, "tick") for at, _ in x.ticks(_MOST_MARKS)]
    has_room = [(x(at), label) for at, label in x.ticks(_MOST_MARKS) if _LABEL / 2 <= x(at) <= _RANGE - _LABEL / 2]
    parts += [text(at, 11, f"{label} %", anchor="middle") for at, label in has_room]
    return silent(_RANGE, 20, parts)


def _range_scale(axis: RangeAxis) -> Scale:
    return Scale(Axis(title="", unit="share", low=axis.low, high=axis.high), _EDGE, _RANGE - _EDGE)


def draw_range(cell: RangeCell) -> Markup:
    """Return a picture of a predicted value and a trial's value, each with its interval, on their column's axis."""
    return silent(_RANGE, _ROW, _range(cell))


def _range(cell: RangeCell) -> Iterator[Markup]:
    x, middle, best = _range_scale(cell.axis), _ROW / 2, cell.axis.best
    yield from (line(x(at), -_ROW, x(at), 2 * _ROW, "rule") for at, _ in x.ticks(_MOST_MARKS))
    if best is not None:
        yield line(x(best), -_ROW, x(best), 2 * _ROW, "winner-rule")
    if (one := cell.predicted) is not None:
        left, right = x.clamped(one.low), x.clamped(one.high)
        yield rect(left, middle - 4, right - left, 8, "p-band", radius=2)
        yield circle(x.clamped(one.value), middle, 3.6, "p-dot")
    if (one := cell.reached) is not None:
        look = " win" if one.value == best else " simulated" if cell.is_simulated else ""
        yield line(x.clamped(one.low), middle, x.clamped(one.high), middle, f"m-line{look}")
        yield circle(x.clamped(one.value), middle, 4.2, f"m-dot{look}")


def draw_memory(cell: MemoryCell) -> Markup:
    """Return a picture of a memory peak as a bar with its limit; a peak far above the limit is cut at the edge."""
    return silent(_MEMORY, _ROW, _memory(cell))


def _memory(cell: MemoryCell) -> Iterator[Markup]:
    x, middle = Scale(Axis(title="", low=0.0, high=1.12 * cell.limit_bytes), 0, _MEMORY), _ROW / 2
    limit, predicted, reached = x(cell.limit_bytes), cell.predicted_bytes, cell.reached_bytes
    yield rect(0, middle - 4, limit, 8, "track", radius=1)
    if reached is not None:
        yield rect(0, middle - 4, x.clamped(reached), 8, f"mem{' tight' if cell.is_tight else ''}", radius=1)
    elif predicted is not None:
        yield rect(0, middle - 4, x.clamped(predicted), 8, "p-band", radius=1)
    if predicted is not None:
        yield circle(min(x.clamped(predicted), _MEMORY - 4.0), middle, 3.2, "p-dot")
    yield line(limit, middle - 8, limit, middle + 8, "limit-tick")


_SPARK, _SPARK_HEIGHT = 96, 24
_MOST_STEPS = 48
"""Maximum number of steps in the line, because more cannot be seen at this width."""


def sparkline(values: Sequence[float | None]) -> Markup:
    """Return a small step line of the best value so far after each trial; empty if no trial has a result.

    Args:
        values: Values of the trials in the order in which they ran; None for a trial without a result.
    """
    grown = list(_best_so_far(values))
    if not grown:
        return Markup()
    x = Scale(Axis(title="", low=0.0, high=max(1, len(values) - 1)), 3, _SPARK - 5)
    y = Scale(Axis(title="", low=grown[0][1], high=grown[-1][1]), _SPARK_HEIGHT - 4, 4)
    points = [(x(number), y(value)) for number, value in _steps(grown)]
    return silent(_SPARK, _SPARK_HEIGHT, [path(stairs(points), "m-step"), circle(*points[-1], 3, "m-dot win")])


def _best_so_far(values: Sequence[float | None]) -> Iterator[tuple[int, float]]:
    """Yield, for each position from the first value on, the position and the highest value so far."""
    best: float | None = None
    for number, value in enumerate(values):
        if value is not None and (best is None or value > best):
            best = value
        if best is not None:
            yield number, best


def _steps(grown: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the first point, the points at which the value rose, and the last point.

    Of many rises, only every n-th is kept.
    """
    rises = [point for before, point in pairwise(grown) if point[1] > before[1]]
    stride = -(-len(rises) // _MOST_STEPS) or 1
    return [grown[0], *rises[::stride], grown[-1]]


_SHARES, _SHARES_HEIGHT = 380.0, 18.0
_NAMED = 0.12
"""Share of the bar from which a part is wide enough for its number."""


def draw_shares(shares: Shares) -> Markup:
    """Return one horizontal bar that shows shares of a total as parts; the large parts show their percentages."""
    looks = {"best": "m-dot win", "tie": "mem", "rest": "p-band"}
    parts: list[Markup] = []
    at = 0.0
    for share, look in shares.parts:
        width = share * _SHARES
        if width >= 1:
            parts.append(rect(at, 0, width - 2, _SHARES_HEIGHT, looks[look], radius=2))
            if share >= _NAMED and look != "rest":
                parts.append(text(at + 8, 13, f"{100 * share:.0f} %", "on-dark"))
        at += width
    return picture(_SHARES, _SHARES_HEIGHT, parts, shares.says)


# ---------------------------------------------------------------- keys
def key(entries: Sequence[tuple[Glyph, str]], tag: str = "p") -> Markup:
    """Return the legend of a picture: each kind of mark with its meaning; empty if there are no entries.

    Args:
        entries: Kinds of marks, each with its meaning.
        tag: HTML element around the legend.
    """
    shown = (element("span", _glyph(glyph), meaning) for glyph, meaning in entries)
    return element(tag, *shown, class_="key") if entries else Markup()


def _glyph(glyph: Glyph) -> Markup:
    marks: dict[str, Markup] = {
        "measured": line(1, 7, 17, 7, "m-line") + circle(9, 7, 3.6, "m-dot"),
        "simulated": line(1, 7, 17, 7, "m-line simulated") + circle(9, 7, 3.6, "m-dot simulated"),
        "soft": circle(9, 7, 2.8, "m-dot soft"),
        "predicted": rect(0, 3, 18, 8, "p-band", radius=2) + circle(9, 7, 3.4, "p-dot"),
        "best": line(9, 0, 9, 14, "winner-rule"),
        "limit": line(9, 0, 9, 14, "limit-tick"),
        "cross": element("path", d="M5.8 3.8l6.4 6.4m-6.4 0l6.4-6.4", class_="cross"),
        "front": path([(1, 12), (7, 12), (7, 7), (13, 7), (13, 2), (17, 2)], "m-front"),
        "cloud": element("path", d="M3 4h0M9 9h0M14 5h0M6 11h0", class_="p-cloud"),
        "line": line(1, 7, 17, 7, "m-line"),
        "reference": line(1, 7, 17, 7, "reference"),
        "way": line(1, 7, 17, 7, "way"),
        "lossy": line(1, 7, 17, 7, "way lossy"),
        "own": line(1, 7, 17, 7, "way own"),
        "message": line(2, 1, 15, 13, "message"),
        "late": line(2, 1, 15, 13, "message late"),
    }
    if glyph == "tie":
        return element("span", "=", class_="tie-mark")
    if glyph not in marks:
        return element("span", class_=f"swatch {glyph}")
    return element("svg", marks[glyph], width=18, height=14, viewBox="0 0 18 14", aria_hidden="true")
