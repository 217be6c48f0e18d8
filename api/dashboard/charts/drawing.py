"""SVG made in Python: elements that escape what they are given, scales, axes, frames, keys and whole pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from markupsafe import Markup, escape

# SVG made in Python: elements that escape what they are given, and whole pictures with a name for who cannot see
# them.
#
# Colour comes from classes, never from attributes, so that dark mode is one rule of a style sheet; no picture needs a
# script, an id or a style attribute, which the pages' policy forbids.

WIDE = 700
NARROW = 350
"""Pixels that a picture is drawn for on a desk, beside another, and on a phone, where its text keeps its size."""


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """An element with those attributes: ``class_`` is ``class``, ``text_anchor`` is ``text-anchor``, None is left out.

    Children that are no markup are escaped.
    """
    given = ((name, value) for name, value in attributes.items() if value is not None)
    told = "".join(f' {_attribute(name)}="{escape(written(value))}"' for name, value in given)
    return Markup(f"<{tag}{told}>{''.join(map(escape, children))}</{tag}>")


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-") if name != "viewBox" else name


def written(value: str | float) -> str:
    """A value as markup has it: a tenth of a pixel is seen by nobody, and a thousand points weigh less without it."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, class_: str | None = None, anchor: str | None = None) -> Markup:
    """Words whose base line begins there; ``anchor`` is ``middle`` or ``end`` where they do not begin there."""
    return element("text", words, x=x, y=y, class_=class_, text_anchor=anchor)


def rect(
    x: float, y: float, width: float, height: float, class_: str, *, radius: float | None = None, title: str = ""
) -> Markup:
    """A rectangle; one of less than no width is drawn as none."""
    said = [element("title", title)] if title else []
    return element("rect", *said, x=x, y=y, width=max(0.0, width), height=height, class_=class_, rx=radius)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def circle(x: float, y: float, radius: float, class_: str, title: str = "") -> Markup:
    """A dot, with what a pointer that rests on it is told."""
    said = [element("title", title)] if title else []
    return element("circle", *said, cx=x, cy=y, r=radius, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str) -> Markup:
    """Straight lines from point to point."""
    return element("path", d="M" + "L".join(f"{written(x)} {written(y)}" for x, y in points), class_=class_)


def cross(x: float, y: float, radius: float = 3.2) -> Markup:
    """Draw the mark of something that came to nothing."""
    a, b, c, d = (written(value) for value in (x - radius, y - radius, x + radius, y + radius))
    return element("path", d=f"M{a} {b}L{c} {d}M{a} {d}L{c} {b}", class_="cross")


def hatched(x: float, y: float, width: float, height: float, class_: str = "idle", gap: float = 6.0) -> Markup:
    """A box with diagonal strokes, cut off at its edges: idle time, allowances."""
    return rect(x, y, width, height, class_) + element("path", d=strokes(x, y, width, height, gap), class_="hatch")


def strokes(x: float, y: float, width: float, height: float, gap: float = 6.0) -> str:
    """Diagonal strokes of a box as commands of a path, so that many boxes may share one."""
    drawn = []
    at = -height
    while at < width:
        left, right = max(0.0, at), min(width, at + height)
        if right > left:
            ends = (x + left, y + height - (left - at), x + right, y + height - (right - at))
            drawn.append("M{} {}L{} {}".format(*map(written, ends)))
        at += gap
    return "".join(drawn)


def picture(
    width: float, height: float, parts: Iterable[str], label: str, class_: str = "chart", *, has_links: bool = False
) -> Markup:
    """A picture that says in ``label`` what it shows; its numbers stand beside it as text, too.

    One with links is a group of these: what is inside of an image, no screen reader finds.
    """
    view = f"0 0 {written(width)} {written(height)}"
    shown = Markup("").join(parts)
    role = "group" if has_links else "img"
    return element("svg", shown, class_=class_, width=width, height=height, viewBox=view, role=role, aria_label=label)


def cell(width: float, height: float, parts: Iterable[str]) -> Markup:
    """A picture in a table's cell: of fixed size, and silent, as the numbers stand beside it."""
    view = f"0 0 {written(width)} {written(height)}"
    shown = Markup("").join(parts)
    return element("svg", shown, class_="cell", width=width, height=height, viewBox=view, aria_hidden="true")


def for_both(draw: Callable[[int], Markup], wide: int = WIDE, narrow: int = NARROW) -> Markup:
    """The picture drawn for a desk and for a phone; the style sheet shows one of them."""
    drawn = (
        element("div", draw(width), class_=f"hide-{where}") for width, where in ((wide, "narrow"), (narrow, "wide"))
    )
    return Markup("").join(drawn)


# Marks of an axis: round numbers, and as many digits as tell them apart.


def round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is no less."""
    if least <= 0:
        return 0.01
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * 0.999999)


def decimals(step: float) -> int:
    """Digits behind the point with which multiples of that step differ: 2 for 0.25."""
    return next(digits for digits in range(16) if math.isclose(round(step, digits), step, rel_tol=1e-6))


def in_percent(shares: Sequence[float]) -> tuple[str, ...]:
    """Marks of an axis as percents without the sign, with as many digits as their step needs: ``40``, ``40.5``."""
    steps = [100 * (after - before) for before, after in pairwise(shares)]
    digits = decimals(round(min(steps), 9)) if steps else 1
    return tuple(f"{100 * share:.{digits}f}" for share in shares)


# Scales: from values to pixels.


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from ``low`` .. ``high`` to pixels ``start`` .. ``end``; a range of nothing lies in the middle."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value, outside of the ends too."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def clamped(self, value: float) -> float:
        """Return the place of a value, or the end nearest to it."""
        return self(min(max(value, self.low), self.high))

    def marks(self, most: int) -> tuple[float, ...]:
        """Round values between the ends, no more than that many."""
        if self.high == self.low:
            return (self.low,)
        step = round_step((self.high - self.low) / max(1, most - 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple(round(index * step, decimals(step)) for index in range(first, last + 1))


# Keys of pictures: what each mark means, beside a head.

Glyph = Literal[
    "band",
    "best",
    "cloud",
    "cross",
    "diamond",
    "front",
    "limit",
    "measured",
    "peak",
    "predicted",
    "simulated",
    "soft",
    "triangle",
]


def key(*entries: tuple[Glyph, str]) -> Markup:
    """Marks with their meaning, in that order: ``key(("measured", "measured, 95 % interval"))``."""
    shown = (element("span", _picture(glyph), meaning) for glyph, meaning in entries)
    return element("span", *shown, class_="key")


def _picture(glyph: Glyph) -> Markup:
    return element("svg", _mark(glyph), width=18, height=14, viewBox="0 0 18 14", aria_hidden="true")


def _mark(glyph: Glyph) -> Markup:
    match glyph:
        case "measured" | "simulated":
            look = " simulated" * (glyph == "simulated")
            return line(1, 7, 17, 7, f"m-line{look}") + circle(9, 7, 3.6, f"m-dot{look}")
        case "soft":
            return circle(9, 7, 2.8, "m-dot soft")
        case "predicted":
            return rect(0, 3, 18, 8, "p-band", radius=2) + circle(9, 7, 3.4, "p-dot")
        case "band":
            return rect(0, 2, 18, 10, "p-band", radius=2)
        case "best":
            return line(9, 0, 9, 14, "winner-rule")
        case "limit":
            return line(9, 0, 9, 14, "limit-tick")
        case "peak":
            return line(9, 0, 9, 14, "mark")
        case "cross":
            return cross(9, 7)
        case "front":
            return path([(1, 12), (7, 12), (7, 7), (13, 7), (13, 2), (17, 2)], "m-front")
        case "cloud":
            return element("path", d="M3 4h0M9 9h0M14 5h0M6 11h0", class_="p-cloud")
        case "triangle":
            return element("path", d="M9 2l6 10h-12z", class_="better")
        case "diamond":
            return element("path", d="M9 2l5 5l-5 5l-5 -5z", class_="regression")


# The unit that a whole picture or column is read in, so that its numbers can be compared at a glance.
