"""Draws charts as SVG, without scripts.

Colours are classes of the style sheet, so that dark mode needs no second drawing.

Each chart is drawn twice, for a wide and for a narrow screen; the style sheet shows one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from markupsafe import Markup, escape

from autotuner.core.units import GIGA, KILO, MEGA
from autotuner.report.charts import (
    Axis,
    Band,
    Block,
    Dot,
    Dots,
    Failures,
    Intervals,
    Line,
    Mark,
    Note,
    Plot,
    Rule,
    Spread,
    Stack,
    Stacks,
    Stretch,
)
from autotuner.report.words import number as written

WIDE, NARROW = 700, 350
"""Widths of a chart in pixels: beside another chart on a wide screen, and on a phone."""

MANY = 60
"""Number of dots from which dots without a name are drawn as one path, since a thousand links would exceed a page's
size."""

_DENSE = 300
"""Number of dots in one path from which each dot is drawn fainter."""

LETTER = 6.4
"""Approximate width of a letter in pixels at a font size of 12 px."""

_DOT_CLASSES = {
    "measured": ("m-dot", 3.4),
    "simulated": ("m-dot simulated", 3.4),
    "soft": ("m-dot soft", 2.8),
    "best": ("m-dot win", 4.6),
    "front": ("m-dot", 3.6),
    "predicted": ("p-dot", 3.6),
    "incumbent": ("m-dot", 3.4),
    "limit": ("m-dot bad", 4.2),
    "regression": ("m-dot bad", 4.5),
    "best_predicted": ("p-dot win", 4.6),
}
_END_CLASSES = {
    "best": "m-dot win",
    "limit": "m-dot bad",
    "predicted": "p-dot",
    "best_predicted": "p-dot win",
    "simulated": "m-dot simulated",
}
"""CSS classes of the dots of intervals by look; every other look is that of a measured value."""

_LINE_CLASSES = {
    "event": "event",
    "measured": "m-line",
    "soft": "par",
    "best": "m-step",
    "front": "m-front",
    "predicted": "p-line",
    "reference": "reference",
    "limit": "limit",
    "way": "way",
    "lossy": "way lossy",
    "own": "way own",
}
_TEXT_CLASSES = {
    "best": "win-text",
    "best_predicted": "win-text",
    "limit": "bad-text",
    "incumbent": "accent-text",
    "soft": "",
}


# ---------------------------------------------------------------- elements
def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element of HTML or SVG.

    Args:
        tag: Name of the element.
        children: Content of the element; text that is not markup is escaped.
        attributes: Attributes by name: ``class_`` becomes ``class``, and ``text_anchor`` becomes ``text-anchor``. An
            attribute with the value None is left out.
    """
    given = "".join(
        f' {name if name == "viewBox" else name.rstrip("_").replace("_", "-")}="{escape(short(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{given}>{''.join(map(escape, children))}</{tag}>")


def short(value: str | float) -> str:
    """Return a value as text for markup; a number has at most one digit after the point, so that pages stay small."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, class_: str = "", anchor: str | None = None) -> Markup:
    """Return an SVG text at a place.

    Args:
        x: Pixel of the place on the x axis: the beginning of the text, or its middle or end according to ``anchor``.
        y: Pixel of the text's base line.
        words: The text.
        class_: Class of the style sheet; empty: none.
        anchor: "middle", "end", or None for the beginning.
    """
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight SVG line from (``x1``, ``y1``) to (``x2``, ``y2``), in pixels.

    ``class_`` is the line's class of the style sheet.
    """
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(
    x: float, y: float, width: float, height: float, class_: str, *, radius: float | None = None, title: str = ""
) -> Markup:
    """Return a rectangle as an SVG element; a negative width counts as 0.

    Args:
        x: Pixel of the rectangle's left edge.
        y: Pixel of the rectangle's upper edge.
        width: Width in pixels.
        height: Height in pixels.
        class_: Class of the style sheet.
        radius: Radius of the corners in pixels; None: sharp corners.
        title: Text that is shown when a pointer rests on the rectangle; empty: none.
    """
    said = [element("title", title)] if title else []
    return element("rect", *said, x=x, y=y, width=max(0.0, width), height=height, class_=class_, rx=radius)


def circle(x: float, y: float, radius: float, class_: str, title: str = "") -> Markup:
    """Return a filled circle, as an SVG element.

    Args:
        x: Pixels of its centre from the left.
        y: Pixels of its centre from the top.
        radius: Radius in pixels.
        class_: Class of the style sheet.
        title: Text that is shown when a pointer rests on the circle; empty: none.
    """
    said = [element("title", title)] if title else []
    return element("circle", *said, cx=x, cy=y, r=radius, class_=class_)


def hatched(x: float, y: float, width: float, height: float, class_: str = "idle") -> Markup:
    """Return a rectangle that is filled with diagonal lines, as SVG elements.

    ``x`` and ``y`` are the pixels of its left and upper edge; ``class_`` is its class of the style sheet.
    """
    return rect(x, y, width, height, class_) + element("path", d=strokes(x, y, width, height), class_="hatch")


def strokes(x: float, y: float, width: float, height: float, gap: float = 6.0) -> str:
    """Return the diagonal lines that fill a rectangle, as SVG path commands; many rectangles can share one path.

    Args:
        x: Pixels of the rectangle's left edge.
        y: Pixels of its upper edge.
        width: Width in pixels.
        height: Height in pixels.
        gap: Pixels between two lines.
    """
    drawn, at = "", -height
    while at < width:
        left, right = max(0.0, at), min(width, at + height)
        if right > left:
            ends = (x + left, y + height - (left - at), x + right, y + height - (right - at))
            drawn += "M{} {}L{} {}".format(*map(short, ends))
        at += gap
    return drawn


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Return an SVG path that joins the points with straight lines; ``class_`` is its class of the style sheet."""
    return element("path", d="M" + "L".join(f"{short(x)} {short(y)}" for x, y in points), class_=class_)


def picture(width: float, height: float, parts: Iterable[str], says: str, *, has_links: bool = False) -> Markup:
    """Return a complete SVG picture.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        parts: Markup inside the picture.
        says: Description for readers who cannot see the picture.
        has_links: True if it contains links. It then has the role of a group, because screen readers find nothing
            inside an image.
    """
    role, view = "group" if has_links else "img", f"0 0 {short(width)} {short(height)}"
    inside = Markup("").join(parts)
    return element("svg", inside, class_="chart", width=width, height=height, viewBox=view, role=role, aria_label=says)


def for_both(draw: Callable[[int], Markup], wide: int = WIDE) -> Markup:
    """Return two versions of a picture, for a wide screen and for a phone; the style sheet shows one of them.

    Args:
        draw: Returns the picture at a width in pixels.
        wide: Width on a wide screen in pixels.
    """
    return Markup(f'<div class="hide-narrow">{draw(wide)}</div><div class="hide-wide">{draw(NARROW)}</div>')


# ---------------------------------------------------------------- scales and ticks
@dataclass(frozen=True, slots=True)
class Scale:
    """A function that maps the values of a chart's axis to pixels."""

    axis: Axis
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value in pixels; values outside the axis get positions outside it."""
        low, high, at = self.axis.low, self.axis.high, value
        if self.axis.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return (
            (self.start + self.end) / 2
            if high == low
            else self.start + (at - low) / (high - low) * (self.end - self.start)
        )

    def clamped(self, value: float) -> float:
        """Return the pixel of a value; if the value lies outside of the axis, return the pixel of the nearest end."""
        return self(min(max(value, self.axis.low), self.axis.high))

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return about ``most`` round values of the axis with their labels; an axis with fixed labels returns these."""
        if self.axis.labels:
            return list(self.axis.labels)
        unit, _ = divisor(self.axis)
        if self.axis.log:
            return [(value * unit, _label(self.axis, value, value)) for value in _log_ticks(self.axis, unit, most)]
        step = _round_step((self.axis.high - self.axis.low) / unit / max(1, most - 1))
        if self.axis.unit == "count":
            step = max(1.0, round(step))
        first, last = math.ceil(self.axis.low / unit / step - 1e-9), math.floor(self.axis.high / unit / step + 1e-9)
        return [(number * step * unit, _label(self.axis, number * step, step)) for number in range(first, last + 1)]


def _round_step(least: float) -> float:
    """Return the smallest round step that is at least ``least``: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 0.01
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999999)


def _log_ticks(axis: Axis, unit: float, most: int) -> list[float]:
    low, high = axis.low / unit, axis.high / unit
    for factors in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [factor * 10.0**power for power in powers for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            break
    return found


def divisor(axis: Axis) -> tuple[float, str]:
    """Return the unit of an axis's tick labels: its size in the base unit of the axis, and its name.

    For example, ``(1e-3, "ms")`` for a chart of short times, whose base unit is the second.
    """
    scales = {
        "share": ((0.01, "%"),),
        "signed_share": ((0.01, "%"),),
        "bytes": ((GIGA, "GB"), (MEGA, "MB"), (KILO, "kB"), (1, "B")),
        "tokens/s": ((GIGA, "Gtokens/s"), (MEGA, "Mtokens/s"), (KILO, "ktokens/s"), (1, "tokens/s")),
        "s": ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "long_duration": ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s")),
        "days": ((86_400, "days"),),
    }
    known = scales.get(axis.unit, ((1.0, ""),))
    high = axis.high / 10 if axis.unit == "s" and 60 <= axis.high < 3600 else axis.high  # 155 s are said so
    scale, name = next((one for one in known if high >= one[0]), known[-1])
    return float(scale), name


def title_of(axis: Axis) -> str:
    """Return the title of an axis, with the unit of its tick labels."""
    return ", ".join(filter(None, (axis.title, divisor(axis)[1])))


def _label(axis: Axis, value: float, step: float) -> str:
    digits = next(digits for digits in range(16) if math.isclose(round(step, digits), step, rel_tol=1e-6))
    match axis.unit:
        case "signed_share":
            return "0" if not round(value, 9) else f"{'+' if value > 0 else '−'}{abs(value):.3g} %"
        case "$":
            return f"${value / 1e6:g}M" if value >= 1e6 else f"${value / 1e3:g}k" if value >= 1e3 else f"${value:g}"
    return f"{value:.{digits}f}" if not axis.log else f"{value:.3g}"


# ---------------------------------------------------------------- plots
def draw(chart: Plot | Intervals | Stacks) -> Markup:
    """Return two versions of the chart, for a wide screen and for a phone; the style sheet shows one of them."""
    match chart:
        case Plot():
            return for_both(lambda width: _Plot(chart, width).drawn, chart.wide)
        case Intervals():
            return for_both(lambda width: _intervals(chart, width), chart.wide)
        case Stacks():
            return for_both(lambda width: _Stacks(chart, width).drawn, chart.wide)


class _Plot:
    """A plot at one width: margins for the ticks, a strip at the right for notes, and the marks."""

    def __init__(self, plot: Plot, width: int) -> None:
        is_wide = width > 400
        has_notes = is_wide and any(isinstance(mark, Note) and mark.x is None for mark in plot.marks)
        self.plot, self.width, self.is_wide = plot, width, is_wide
        self.left, self.right = 34 if plot.y.unit == "share" else 52, width - (100 if has_notes else 14)
        self.top, self.floor = 30, plot.height - 40
        self.x = Scale(plot.x, self.left + 8, self.right)
        self.y = Scale(plot.y, self.floor, self.top)

    @property
    def drawn(self) -> Markup:
        """Return the plot as markup."""
        shown = [mark.dots for mark in self.plot.marks if isinstance(mark, Dots | Failures)]
        has_links = any(dot.href for dots in shown for dot in dots)
        return picture(self.width, self.plot.height, self._parts(), self.plot.says, has_links=has_links)

    def _parts(self) -> Iterator[Markup]:
        for at, label in self.y.ticks(7):
            yield line(self.left, self.y(at), self.right, self.y(at), "rule")
            yield text(self.left - 8, self.y(at) + 4, label, anchor="end")
        for mark in self.plot.marks:
            yield from self._mark(mark)
        yield line(self.left, self.floor, self.right, self.floor, "axis")
        for at, label in self.x.ticks(7 if self.is_wide else 5):
            yield line(self.x(at), self.floor, self.x(at), self.floor + 4, "tick")
            yield text(self.x(at), self.floor + 17, label, anchor="middle")
        yield text(0, 12, title_of(self.plot.y))
        yield text((self.left + self.right) / 2, self.plot.height - 4, title_of(self.plot.x), anchor="middle")
        yield from self._names()
        yield from self._line_names()

    def _mark(self, mark: Mark) -> Iterator[Markup]:
        match mark:
            case Dots():
                yield from self._dots(mark.dots)
            case Failures():
                yield from self._failures(mark.dots, mark.past)
            case Line():
                yield self._clipped(mark.points, _LINE_CLASSES[mark.look])
            case Band():
                yield self._clipped((*mark.upper, *reversed(mark.lower)), "p-band")
            case Rule():
                yield from self._rule(mark)
            case Note():
                yield from self._note(mark)
            case Stretch():
                yield from self._stretch(mark)

    def _clipped(self, points: Iterable[tuple[float, float]], class_: str) -> Markup:
        """Return a path that does not leave the plot: a nested SVG element cuts off everything outside."""
        places = [(self.x(x), self.y(y)) for x, y in points]
        drawn = path(places, class_)
        if all(self.left <= x <= self.right and self.top <= y <= self.floor for x, y in places):
            return drawn
        width, height = self.right - self.left, self.floor - self.top
        view = f"{short(self.left)} {short(self.top)} {short(width)} {short(height)}"
        return element("svg", drawn, x=self.left, y=self.top, width=width, height=height, viewBox=view)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.clamped(x), self.y.clamped(y)

    def _dots(self, dots: Sequence[Dot]) -> Iterator[Markup]:
        crowd = [dot for dot in dots if dot.look in ("soft", "predicted") and not dot.name]
        if len(crowd) > MANY:
            yield self._cloud(crowd)
            dots = [dot for dot in dots if dot.look not in ("soft", "predicted") or dot.name]
        for dot in dots:
            (x, y), (class_, radius) = self._at(dot.x, dot.y), _DOT_CLASSES[dot.look]
            simulated = " simulated" * (dot.is_simulated and dot.look != "best")
            if dot.low is not None and dot.high is not None and dot.high > dot.low:
                yield line(x, self.y.clamped(dot.low), x, self.y.clamped(dot.high), f"m-line{simulated}")
            class_ += simulated
            if dot.look == "regression":
                square = {"x": x - radius, "y": y - radius, "width": 2 * radius, "height": 2 * radius}
                yield linked(dot, "rect", **square, class_=class_)
            else:
                yield linked(dot, "circle", cx=x, cy=y, r=radius, class_=class_)

    def _cloud(self, dots: Sequence[Dot]) -> Markup:
        """Return all dots as a single path whose round line ends are the dots.

        A script finds the dot of a trial by its position in the path.
        """
        moves = "".join("M{} {}h0".format(*map(short, self._at(dot.x, dot.y))) for dot in dots)
        look = "p-cloud" if dots[0].look == "predicted" else "m-cloud"
        look += " simulated" * dots[0].is_simulated + " dense" * (len(dots) > _DENSE)
        keys = runs(dots) if dots[0].key is not None else None
        return element("path", d=moves, class_=look, data_trials=keys)

    def _failures(self, dots: Sequence[Dot], past: float | None) -> Iterator[Markup]:
        crosses = [(dot, *self._at(dot.x, dot.y)) for dot in dots]
        if past is not None:  # on one line, these layouts would hide each other
            least = self.x(past) + 6
            crosses = [(dot, min(max(x, least + 4 * ((dot.key or 0) % 4)), self.right), y) for dot, x, y in crosses]
        strokes = [f"M{short(x - 3.2)} {short(y - 3.2)}l6.4 6.4m-6.4 0l6.4-6.4" for _, x, y in crosses]
        if len(dots) > MANY:
            yield element("path", d="".join(strokes), class_="cross", data_trials=runs(dots))
        else:
            yield from (linked(dot, element("path", d=d, class_="cross")) for dot, d in zip(dots, strokes, strict=True))

    def _rule(self, rule: Rule) -> Iterator[Markup]:
        axis, scale = (self.plot.x, self.x) if rule.along == "x" else (self.plot.y, self.y)
        if not axis.low <= rule.at <= axis.high:
            return
        at, look = scale(rule.at), f"halo {_TEXT_CLASSES.get(rule.look, '')}".strip()
        if rule.along == "x":
            if rule.beyond:
                yield element(
                    "rect", x=at, y=self.top, width=self.right - at, height=self.floor - self.top, class_="beyond"
                )
            yield line(at, self.top, at, self.floor, _LINE_CLASSES[rule.look])
            yield text(at - 6, self.floor - 8, rule.label, look, "end")
        else:
            yield line(self.left, at, self.right, at, _LINE_CLASSES[rule.look])
            yield text(self.right, at - 6, rule.label, look, "end")

    def _stretch(self, stretch: Stretch) -> Iterator[Markup]:
        left, right = self.x.clamped(stretch.low), self.x.clamped(stretch.high)
        left = self.left if stretch.low <= self.plot.x.low else left
        yield rect(left, self.top, right - left, self.floor - self.top, stretch.look)
        if right - left > LETTER * len(stretch.label) + 10:
            yield text(left + 8, self.floor - 8, stretch.label)

    def _note(self, note: Note) -> Iterator[Markup]:
        look = _TEXT_CLASSES.get(note.look, "strong")
        if note.is_above and note.x is not None:
            yield text(self.x(note.x), max(self.y.clamped(note.y) - 7, 12), note.words, f"halo {look}", "end")
        elif note.x is not None:
            yield text(self.x(note.x) + 6, self.y.clamped(note.y) + 18, note.words, f"halo {look}")
        elif self.is_wide:
            yield text(self.right + 8, self.y.clamped(note.y) + 5 + 15 * note.lines_below, note.words, look)

    def _names(self) -> Iterator[Markup]:
        """Yield the names of dots in their order; a name that would cover an earlier one is left out."""
        taken: list[tuple[float, float, float]] = []
        said: set[str] = set()
        marks = [mark for mark in self.plot.marks if isinstance(mark, Dots)]
        named = [(dot, mark.is_named_right) for mark in marks for dot in mark.dots if dot.name]
        for dot, is_right in sorted(named, key=lambda one: not one[0].look.startswith("best")):
            (x, y), width = self._at(dot.x, dot.y), LETTER * len(dot.name)
            has_room = x + 8 + width <= self.right if is_right else x - 8 - width < self.left
            starts = x + 8 if has_room else x - 8 - width
            is_free = dot.name not in said and all(
                abs(y - other) > 15 or starts + width < left or right < starts for left, right, other in taken
            )
            if self.left <= starts and starts + width <= self.right and is_free and len(taken) < 4:
                taken.append((starts, starts + width, y))
                said.add(dot.name)
                yield text(
                    starts, max(y - 8, self.top - 11), dot.name, f"halo {_TEXT_CLASSES.get(dot.look, 'ink-text')}"
                )

    def _line_names(self) -> Iterator[Markup]:
        """Yield the names of lines above their left ends, moved up where names would overlap."""
        named = [mark for mark in self.plot.marks if isinstance(mark, Line) and mark.label]
        room = math.inf
        for at, name in sorted(((self.y(mark.points[0][1]), mark.label) for mark in named), reverse=True):
            room = min(at - 4, room - 14)
            yield text(self.left + 28, room, name, "halo ink-text")


def runs(dots: Sequence[Dot]) -> str:
    """Return the trial numbers of dots as text; consecutive numbers become a range: ``0-12 14 16-99``."""
    runs: list[list[int]] = []
    for key in (dot.key for dot in dots if dot.key is not None):
        if runs and key == runs[-1][1] + 1:
            runs[-1][1] = key
        else:
            runs.append([key, key])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def linked(dot: Dot, tag: str, **attributes: str | float | None) -> Markup:
    """Return the mark of a dot, as a link if the dot has an address.

    The Tab key stops only at the links that readers look for: those of the best dot and of dots on the Pareto front.

    Args:
        dot: The dot.
        tag: SVG element that is drawn, or its markup.
        attributes: Attributes of the element.
    """
    title = element("title", dot.said)
    if not dot.href:
        return element(tag, *([title] if dot.said else []), **attributes)
    stop, key = (None if dot.look in ("best", "front") else "-1"), (None if dot.key is None else str(dot.key))
    return element("a", title, element(tag, **attributes), href=dot.href, data_trial=key, tabindex=stop)


# ---------------------------------------------------------------- rows
_ROW, _BELOW = 30, 30


def _intervals(chart: Intervals, width: int) -> Markup:
    height, is_wide = _ROW * len(chart.rows) + _BELOW + 4, width > 400
    longest = max((len(row.end_text) for row in chart.rows), default=0)
    left = min(LETTER * max(len(row.name) for row in chart.rows) + 16, 0.5 * width)
    x = Scale(chart.x, left, width - 16 - LETTER * longest)

    def parts() -> Iterator[Markup]:
        for at, label in x.ticks(6 if is_wide else 4):
            yield line(x(at), 4, x(at), height - _BELOW + 4, "axis" if not at else "rule")
            sign = f" {divisor(chart.x)[1]}" if chart.x.unit in ("share", "s") else ""
            yield text(x(at), height - 10, f"{label}{sign}", anchor="middle")
        for number, row in enumerate(chart.rows):
            y, look = 4 + _ROW * (number + 0.5), _END_CLASSES.get(row.look, "m-dot")
            is_quiet = row.is_quiet or row.look == "soft"
            yield text(left - 12, y + 4, row.name, "" if is_quiet else "ink-text", "end")
            if row.look in ("gain", "loss"):
                yield rect(x(row.low), y - 8, max(1.0, x(row.high) - x(row.low)), 16, row.look)
            elif chart.is_banded:
                yield rect(x(row.low), y - 4, x(row.high) - x(row.low), 8, "p-band", radius=2)
            else:
                yield line(x(row.low), y, x(row.high), y, "m-line")
            if row.look not in ("gain", "loss"):
                yield circle(x(row.value), y, 4, look)
            yield text(width, y + 4, row.end_text, anchor="end")

    return picture(width, height, parts(), chart.says)


# ---------------------------------------------------------------- stacks
_ON_LOOK = {
    "forward": "on-forward",
    "optimizer": "on-forward",
    "communication": "on-communication",
    "idle": "ink-text",
}
_HATCHED = ("idle", "allowance")
_LEAST_HATCHED = 5.0
"""Minimum width in pixels of a hatched part, so that seconds stay visible beside weeks."""


class _Stacks:
    """A chart of bars made of parts, at one width."""

    def __init__(self, chart: Stacks, width: int) -> None:
        self.chart, self.width, self.is_narrow = chart, width, width < 500
        rows, limit = chart.rows, chart.limit or 0.0
        most = max(max(row.total, row.mark or 0.0) for row in rows)
        ends = [row.whole.high for row in rows if row.whole]
        self.shows_limit = bool(limit) and most >= 0.2 * limit
        if chart.is_joined:
            self.left, self.right = (0.0, 8.0) if self.is_narrow else (84.0, 132.0)
            self.thick, self.apart = (34.0, 66.0) if self.is_narrow else (38.0, 74.0)
            high = 1.02 * min(max(most, *ends, 0.0), 1.5 * most)
        else:
            self.left = 14.0 + LETTER * max(len(row.name) for row in rows)
            self.right = 8.0 if self.is_narrow else 30.0 + LETTER * max(len(row.end_text) for row in rows)
            self.thick, self.apart = (22.0, 40.0) if self.is_narrow or len(rows) > 4 else (26.0, 46.0)
            high = 1.06 * max(most, limit if self.shows_limit else 0.0)
        self.top = 22 if chart.is_joined else 26
        self.height = self.top + self.apart * (len(rows) - 1) + self.thick + 42
        axis = Axis(title="", unit=chart.unit, low=0.0, high=high)
        self.x = Scale(axis, self.left, width - self.right)

    @property
    def drawn(self) -> Markup:
        """Return the chart as markup."""
        return picture(self.width, self.height, self._parts(), self.chart.says)

    def _parts(self) -> Iterator[Markup]:
        _, unit = divisor(self.x.axis)
        for at, label in self.x.ticks((4 if self.is_narrow else 7) if self.chart.is_joined else 5):
            yield line(self.x(at), 14, self.x(at), self.height - 28, "rule")
            anchor = "start" if self.left == 0 and not at else "middle"
            yield text(self.x(at), self.height - 11, f"{label} {unit}" if not at else label, anchor=anchor)
        for row, stack in enumerate(self.chart.rows):
            yield from self._row(stack, self.top + self.apart * row)
        if self.chart.is_joined:
            for row, (above, below) in enumerate(pairwise(self.chart.rows)):
                yield from self._joints(above, below, self.top + self.apart * row)
        if self.shows_limit and self.chart.limit is not None:
            at = self.x(self.chart.limit)
            yield line(at, 16, at, self.height - 30, "limit")
            label = f"limit {written(self.chart.limit, self.chart.unit)}"
            yield text(at, 11, label, "bad-text", "end" if self.is_narrow else "middle")

    def _row(self, stack: Stack, y: float) -> Iterator[Markup]:
        middle, strong = y + self.thick / 2 + 4, "strong" if stack.is_strong else ""
        if not self.chart.is_joined:
            yield text(self.left - 10, middle, stack.name, "lane-label", "end")
        elif self.is_narrow:
            yield text(0, y - 6, f"{stack.name} {stack.end_text}", strong)
        else:
            yield text(self.left - 12, middle, stack.name, strong, "end")
        ends = list(accumulate((block.value for block in stack.blocks), initial=0.0))
        placed = list(zip(stack.blocks, ends, ends[1:], strict=False))
        for block, start, end in sorted(placed, key=lambda one: one[0].look in _HATCHED):  # idle parts may be widened
            if block.value > 0:
                yield from self._block(stack, block, self.x(start), self.x(end), y)
        yield from self._row_end(stack, y, middle, strong)

    def _block(self, stack: Stack, block: Block, left: float, right: float, y: float) -> Iterator[Markup]:
        value = written(block.value, self.chart.unit)
        if block.look in _HATCHED:
            width = max(_LEAST_HATCHED, right - left)
            yield hatched(left, y, width, self.thick, "idle" if self.chart.is_joined else block.look)
        else:
            look = f"{block.look} pencilled" if stack.is_predicted else block.look
            yield rect(left, y, right - left, self.thick, look, title=f"{block.name}, {stack.name}: {value}")
        if right - left > 2:
            yield line(right, y, right, y + self.thick, "gap")
        if self.chart.is_joined:
            words_of = (f"{block.name} {value}", block.name, block.name.partition(":")[0])
            fits = (words for words in words_of if right - left > 6.6 * len(words) + 14)
            if words := next(fits, ""):
                look = "ink-text" if stack.is_predicted else _ON_LOOK.get(block.look, "on-backward")
                yield text(left + 8, y + self.thick / 2 + 4, words, look)

    def _row_end(self, stack: Stack, y: float, middle: float, strong: str) -> Iterator[Markup]:
        """Yield the mark of a measured value, the other total, and the text at the end of a row.

        The label of the mark never overlaps the text.
        """
        if stack.mark is not None:
            at, label = self.x(stack.mark), written(stack.mark, self.chart.unit)
            yield line(at, y - 4, at, y + self.thick + 4, "mark")
            has_room = at + 7 + LETTER * len(label) < self.width - self.right
            if not self.is_narrow and has_room:
                yield text(at + 7, middle, label, "strong halo")
            elif not self.is_narrow:
                yield text(at, y + self.thick + 15, label, "strong halo", "end")
        if stack.whole is not None:
            yield from self._whole(stack.whole, y, is_predicted=stack.is_predicted)
        if stack.end_text and not self.is_narrow:
            x = self.x(stack.total) + 10 if self.chart.is_joined else self.width - self.right + 12
            yield text(x, middle, stack.end_text, f"halo {strong}".strip())

    def _whole(self, whole: Spread, y: float, *, is_predicted: bool) -> Iterator[Markup]:
        """Yield another total with its interval: a band above a predicted bar, or a whisker below a measured one."""
        low, at, high = map(self.x.clamped, (whole.low, whole.value, whole.high))
        if not is_predicted:
            yield line(low, y + self.thick + 8, high, y + self.thick + 8, "m-line")
            yield circle(at, y + self.thick + 8, 3.4, "m-dot")
        elif not self.is_narrow:
            yield rect(low, y - 11, high - low, 6, "p-band", radius=2)
            yield circle(at, y - 8, 3.4, "p-dot")

    def _joints(self, above: Stack, below: Stack, y: float) -> Iterator[Markup]:
        """Yield lines from the end of each part to the end of the same part in the next bar."""
        bottom, top = y + self.thick, y + self.apart
        yield line(self.x(0.0), bottom, self.x(0.0), top, "axis")
        ends = [list(accumulate(block.value for block in stack.blocks)) for stack in (above, below)]
        for upper, lower, one, other in zip(*ends, above.blocks, below.blocks, strict=True):
            if max(one.value, other.value) > 0.004 * self.x.axis.high:
                yield line(self.x(upper), bottom, self.x(lower), top, "axis")
