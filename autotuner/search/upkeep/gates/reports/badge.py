"""A badge as SVG: what it is about, and how that stands, for a README or a wiki."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from autotuner.core.upkeep import MfuGateOutcome
from autotuner.search.upkeep.gates.reports.report import GateReport

_HEIGHT, _PAD, _CHARACTER = 20, 6, 6.6
"""Pixels; a character is as wide as the mean of Verdana's at 11 px, and the text is stretched to what was reckoned."""

_GREY, _GREEN, _RED, _AMBER = "#555", "#2e7d32", "#c62828", "#9a6700"
"""White text on each of them has a contrast of 4.5 at least (WCAG 2.2, 1.4.3)."""


def badge_svg(report: GateReport) -> str:
    """The MFU, coloured by the outcome."""
    return _svg("MFU", report.badge, _colour(report))


def _colour(report: GateReport) -> str:
    match report.outcome:
        case None:
            return _GREY
        case MfuGateOutcome.FAILED:
            return _RED
        case _ if report.is_passed:
            return _GREEN
    return _AMBER


def _svg(left: str, right: str, colour: str) -> str:
    widths = [round(_CHARACTER * len(text)) + 2 * _PAD for text in (left, right)]
    whole = sum(widths)
    texts = _text(left, 0, widths[0]) + _text(right, widths[0], widths[1])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{_HEIGHT}" role="img" '
        f"aria-label={quoteattr(f'{left}: {right}')}><title>{escape(f'{left}: {right}')}</title>"
        f'<clipPath id="r"><rect width="{whole}" height="{_HEIGHT}" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{widths[0]}" height="{_HEIGHT}" fill="{_GREY}"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="{_HEIGHT}" fill="{colour}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )


def _text(text: str, x: int, width: int) -> str:
    length = f'textLength="{width - 2 * _PAD}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x + _PAD}" y="14" {length}>{escape(text)}</text>'
