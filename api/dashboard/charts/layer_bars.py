"""Layers of communication: what the best reaches as one layer after the other is searched, and what each gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from api.dashboard.charts.axis import signed_percent
from api.dashboard.charts.scale import Scale
from api.dashboard.charts.svg import for_both, line, picture, rect, text
from autotuner.search.explain.layers import LayerGain, LayerReport

_ROW, _THICK, _TOP, _FOOT = 30.0, 17.0, 6.0, 40.0
_LEFT, _RIGHT = 118.0, 64.0
_FULL = 100
"""Units of the axis: the best of strategies alone, whatever is maximised."""


def layer_bars(report: LayerReport, *, is_measured: bool = False, wide: int = 896) -> Markup:
    """A bar for each layer, with what it adds to the one before at its end, for a desk and for a phone.

    Args:
        report: Of at least one layer.
        is_measured: Bars are ink; else pencil.
        wide: Pixels on a desk.
    """
    height = _TOP + _ROW * len(report.gains) + _FOOT
    label = "What the best layout reaches. " + "; ".join(gain.sentence for gain in report.gains)
    look = "mem" if is_measured else "p-band"
    return for_both(lambda width: picture(width, height, _rows(report.gains, look, width, height), label), wide)


def _rows(gains: Sequence[LayerGain], look: str, width: int, height: float) -> Iterator[Markup]:
    first = gains[0].value
    x = Scale(0, max(_FULL * gain.value / first for gain in gains), _LEFT, width - _RIGHT)
    floor = height - _FOOT
    for mark in x.marks(4 if width < 500 else 8):
        yield line(x(mark), _TOP, x(mark), floor + 4, "rule")
        yield text(x(mark), floor + 17, f"{mark:g}", anchor="middle")
    yield text((_LEFT + width - _RIGHT) / 2, height - 4, "% of what strategies alone reach", anchor="middle")
    before = 0.0
    for number, gain in enumerate(gains):
        reached = _FULL * gain.value / first
        yield from _row(gain, look, (before if number else reached, reached), x, _TOP + _ROW * number)
        before = reached


def _row(gain: LayerGain, look: str, ends: tuple[float, float], x: Scale, top: float) -> Iterator[Markup]:
    y, (before, reached) = top + (_ROW - _THICK) / 2, ends
    yield text(x(0) - 8, y + _THICK - 4, str(gain.layer), anchor="end")
    yield rect(x(0), y, x(before) - x(0), _THICK, look, title=gain.sentence)
    if gain.change and reached > before:
        yield rect(x(before), y, x(reached) - x(before), _THICK, "gain", title=gain.sentence)
        yield text(x(reached) + 6, y + _THICK - 4, signed_percent(gain.gain), "bold")
