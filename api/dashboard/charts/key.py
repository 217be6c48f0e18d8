"""Keys of pictures: what each mark means, beside a head."""

from __future__ import annotations

from typing import Literal

from markupsafe import Markup

from api.dashboard.charts.svg import circle, cross, element, line, path, rect

Glyph = Literal[
    "band", "best", "cloud", "cross", "diamond", "front", "limit", "measured", "peak", "predicted", "soft", "triangle"
]


def key(*entries: tuple[Glyph, str]) -> Markup:
    """Marks with their meaning, in that order: ``key(("measured", "measured, 95 % interval"))``."""
    shown = (element("span", _picture(glyph), meaning) for glyph, meaning in entries)
    return element("span", *shown, class_="key")


def _picture(glyph: Glyph) -> Markup:
    return element("svg", _mark(glyph), width=18, height=14, viewBox="0 0 18 14", aria_hidden="true")


def _mark(glyph: Glyph) -> Markup:
    match glyph:
        case "measured":
            return line(1, 7, 17, 7, "m-line") + circle(9, 7, 3.6, "m-dot")
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
