"""Pictures in cells of a table, and keys of pictures; the numbers stand beside them as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from autotuner.report.charts import Axis, BarCell, Glyph, Shares
from autotuner.report.drawing import Scale, circle, element, line, path, picture, rect, text

_BAR, _BAR_HEIGHT = 110, 28
"""Pixels of a bar's cell."""


def silent(width: float, height: float, parts: Iterable[Markup]) -> Markup:
    """Return a picture that screen readers pass over."""
    view = f"0 0 {width} {height}"
    return element("svg", *parts, class_="cell", width=width, height=height, viewBox=view, aria_hidden="true")


def draw_bar(cell: BarCell) -> Markup:
    """Return a number as a bar from the left, or from the middle where it has a sign."""
    return silent(_BAR, _BAR_HEIGHT, _bar(cell))


def _bar(cell: BarCell) -> Iterator[Markup]:
    low = -cell.most if cell.is_signed else 0.0
    x = Scale(Axis(title="", low=low, high=cell.most), 0, _BAR)
    start, end = x(0.0), x(cell.value)
    if cell.is_signed:
        yield line(start, 0, start, _BAR_HEIGHT, "axis")
    yield rect(min(start, end), 10, abs(end - start), 8, cell.look, radius=1)


_SHARES, _SHARES_HEIGHT = 380.0, 18.0
_NAMED = 0.12
"""Share of the bar from which on a part has room for its number."""


def draw_shares(shares: Shares) -> Markup:
    """Return a whole as one bar of its parts."""
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
    """Return marks with their meaning, to stand beside a heading; nothing for none."""
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
