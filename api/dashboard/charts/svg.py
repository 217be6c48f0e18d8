"""SVG made in Python: elements that escape what they are given, and whole pictures with a name for who cannot see them.

Colour comes from classes, never from attributes, so that dark mode is one rule of a style sheet; no picture needs a
script, an id or a style attribute, which the pages' policy forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from markupsafe import Markup, escape

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
    """Where something came to nothing."""
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
