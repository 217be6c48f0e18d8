"""Step times by the bandwidth between nodes, a line for each way to share gradients; both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, for_both, line, path, picture, rect, text
from autotuner.core.units import format_rate, format_seconds
from autotuner.search.explain.bandwidth import BandwidthCurve, BandwidthWay

_ROW = 14.0
"""Pixels between the base lines of two names."""

_STRIP = 18.0
"""Height of the strip that says which way is fastest."""

_LETTER = 6.6
"""Pixels of a letter, about: what fits into the strip."""


def bandwidth_picture(curve: BandwidthCurve, wide: int) -> Markup:
    """The curve for a desk and for a phone; nothing where it has no ways."""
    if not curve.ways:
        return Markup("")
    return for_both(lambda width: _Drawn.of(curve, width).picture, wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    curve: BandwidthCurve
    ways: Sequence[BandwidthWay]
    frame: Frame
    x: Scale
    y: Scale

    @classmethod
    def of(cls, curve: BandwidthCurve, width: int) -> Self:
        """The lines of what fits, in their place."""
        ways = [way for way in curve.ways if way.fits]
        steps_s = [seconds for way in ways for seconds in way.step_s]
        frame = Frame(width=width, height=330, left=62, right=72, top=30, bottom=48 + _STRIP)
        low, high = curve.bandwidths_bytes_per_s[0], curve.bandwidths_bytes_per_s[-1]
        return cls(
            curve=curve,
            ways=ways,
            frame=frame,
            x=frame.across(math.log10(low), math.log10(high)),
            y=frame.upward(math.log10(0.9 * min(steps_s)), math.log10(1.2 * max(steps_s))),
        )

    @property
    def picture(self) -> Markup:
        """All of it."""
        said = f"Predicted step time by bandwidth between nodes: {'; '.join(self.curve.sentences[:1])}"
        return picture(self.frame.width, self.frame.height, self._parts(), said)

    def _parts(self) -> Iterator[Markup]:
        yield from self._rules()
        yield from self._here()
        for way in self.ways:
            points = zip(self.curve.bandwidths_bytes_per_s, way.step_s, strict=True)
            class_ = f"way{' lossy' if way.is_lossy else ''}{' own' if way.name == self.curve.own else ''}"
            yield path([(self.x(math.log10(each)), self.y(math.log10(seconds))) for each, seconds in points], class_)
        yield from self._names()
        yield from self._strip()

    def _rules(self) -> Iterator[Markup]:
        """A rule for each power of ten of seconds, a tick for each decade of bandwidth."""
        frame = self.frame
        for power in range(math.ceil(self.y.low), math.floor(self.y.high) + 1):
            yield line(frame.left, self.y(power), frame.end, self.y(power), "rule")
            yield text(frame.left - 8, self.y(power) + 4, format_seconds(10.0**power), anchor="end")
        marks = self.curve.bandwidths_bytes_per_s[:: 4 if frame.width > 500 else 8]
        yield from frame.ground(self.x, [math.log10(mark) for mark in marks], lambda at: _rate(10**at))
        yield from frame.titles("step, predicted", "bandwidth between nodes, of one accelerator")

    def _here(self) -> Iterator[Markup]:
        at = self.x(math.log10(self.curve.own_bytes_per_s))
        yield line(at, self.frame.top, at, self.frame.floor, "event")
        yield text(at - 4, self.frame.top - 4, f"here {_rate(self.curve.own_bytes_per_s)}", "strong", "end")

    def _names(self) -> Iterator[Markup]:
        """Above the lines' slow ends, right of the axis' title; moved up where they would cover each other."""
        room = math.inf
        ends = sorted(((self.y(math.log10(way.step_s[0])), way.name) for way in self.ways), reverse=True)
        for at, name in ends:
            room = min(at - 4, room - _ROW)
            yield text(self.frame.left + 28, room, name, "halo ink-text")

    def _strip(self) -> Iterator[Markup]:
        """Which way is fastest, below the axis."""
        top = self.frame.floor + 24
        for number, span in enumerate(self.curve.spans):
            start, end = (self.x(math.log10(each)) for each in (span.low_bytes_per_s, span.high_bytes_per_s))
            class_ = "span odd" if number % 2 else "span"
            yield rect(start, top, end - start, _STRIP, class_, title=f"{span.way} takes the shortest step")
            if _LETTER * len(span.way) < end - start:
                yield text((start + end) / 2, top + 13, span.way, "ink-text", "middle")
        yield text(self.frame.left - 8, top + 13, "shortest", anchor="end")


def _rate(bytes_per_s: float) -> str:
    return format_rate(8 * bytes_per_s, "bit/s").replace(",", "")
