"""Measured against predicted MFU: right on the diagonal, as right as it said within the band."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, in_percent, line, path, picture, text
from api.dashboard.charts.spread import Spread
from api.dashboard.charts.sweep.marks import MANY, TrialPoint, cloud, linked_dot, reached


def agreement(points: Sequence[TrialPoint], width: int, *, kind: str = "measured") -> Markup | None:
    """The picture; None where nothing was measured.

    Args:
        points: Trials that ended.
        width: Pixels that it is drawn for.
        kind: What the figures are called: measured, simulated or estimated.
    """
    pairs = reached(points)
    if not pairs:
        return None
    drawn = _Agreement.of(pairs, width, kind)
    label = f"{kind.capitalize()} against predicted MFU of {len(pairs)} trials; the band is the usual 80 % interval."
    return picture(width, drawn.frame.height, drawn.parts(), label, has_links=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Agreement:
    pairs: Sequence[tuple[TrialPoint, Spread]]
    error: float
    kind: str
    frame: Frame
    x: Scale
    y: Scale

    @classmethod
    def of(cls, pairs: Sequence[tuple[TrialPoint, Spread]], width: int, kind: str) -> _Agreement:
        values = [value for point, spread in pairs for value in (point.predicted.value, spread.value)]
        margin = max(0.08 * (max(values) - min(values)), 0.06 * max(values))
        low, high = max(0.0, min(values) - margin), max(values) + margin
        frame = Frame(width=width, height=320)
        errors = [point.predicted.high / point.predicted.value - 1 for point, _ in pairs if point.predicted.value]
        return cls(
            pairs=pairs,
            error=statistics.median(errors) if errors else 0.0,
            kind=kind,
            frame=frame,
            x=frame.across(low, high),
            y=frame.upward(low, high),
        )

    def parts(self) -> Iterator[Markup]:
        low, high, factor = self.x.low, self.x.high, 1 + self.error
        yield self._band(factor)
        yield from self.frame.share_rules(self.y)
        marks = self.x.marks(6)
        labels = dict(zip(marks, in_percent(marks), strict=True))
        yield from self.frame.ground(self.x, marks, labels.__getitem__)
        yield path([(self.x(low), self.y(low)), (self.x(high), self.y(high))], "p-line")
        yield from self._points()
        if self.error:
            at = max(self.x.clamped(high / factor) - 6, self.frame.left + 48), self.frame.top + 14
            yield text(*at, f"± {100 * self.error:.0f} %", "halo", "end")
        yield from self.frame.titles(f"{self.kind} MFU, %", "predicted MFU, %")

    def _band(self, factor: float) -> Markup:
        """Within that factor of the diagonal, cut off at the edges of the plot."""
        low, high = self.x.low, self.x.high
        corners = [
            (low, min(low * factor, high)),
            (max(low, high / factor), high),
            (high, high),
            (high, max(low, high / factor)),
            (min(low * factor, high), low),
            (low, low),
        ]
        return path([(self.x(x), self.y(y)) for x, y in corners], "band")

    def _points(self) -> Iterator[Markup]:
        places = [(point, self.x(point.predicted.value), self.y(spread.value)) for point, spread in self.pairs]
        if len(places) > MANY:
            yield cloud(places, "m-cloud")
            return
        for (point, spread), at in zip(self.pairs, places, strict=True):
            if spread.high > spread.low:
                yield line(at[1], self.y.clamped(spread.low), at[1], self.y.clamped(spread.high), "m-line")
            said = f"{self.kind} {100 * spread.value:.1f} %, predicted {100 * point.predicted.value:.1f} %"
            yield linked_dot(at, 3.2, "m-dot", said)
