"""Parallel coordinates: one line per trial through all its choices, with scales that a brush script reads.

The brush needs only the picture: every axis states its scale (``data-low`` .. ``data-high`` from ``data-bottom`` to
``data-top``), and ``data-trials`` lists the trials of a path in the order of its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

from markupsafe import Markup

from autotuner.report.charts import Axis, ChoiceAxis, NumberAxis, Parallel
from autotuner.report.drawing import (
    MANY,
    Scale,
    divisor,
    element,
    line,
    linked,
    picture,
    rect,
    runs,
    short,
    text,
    title_of,
)

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT = 1296, 300, 50, 278, 84, 56
_INSET, _SPREAD, _SHEETS, _CURVED, _LETTERS = 14, 16.0, 20, 200, 17
"""Pixels beyond the last choice; pixels over which the lines through one choice are spread; number of paths that the
lines share; largest number of lines that are drawn as curves; letters in one line of an axis's name."""


def brushes(chart: Parallel) -> list[tuple[str, str, Sequence[str]]]:
    """Return the name, the label and the possible values of each axis, for inputs that filter the chart's trials.

    An axis of numbers has an empty list of values.
    """
    return [
        (axis.name, axis.label, axis.words) if isinstance(axis, ChoiceAxis) else (axis.name, title_of(axis.axis), ())
        for axis in chart.axes
    ]


def draw_parallel(chart: Parallel) -> Markup:
    """Return the picture of parallel coordinates. On a narrow screen, readers scroll the picture."""
    return picture(_WIDTH, _HEIGHT, _Drawn(chart).parts(), chart.says, has_links=True)


class _Drawn:
    def __init__(self, chart: Parallel) -> None:
        apart = (_WIDTH - _RIGHT - _LEFT) / (len(chart.axes) - 1)
        self.dots = chart.dots
        self.columns = [_Column.of(axis, _LEFT + apart * place) for place, axis in enumerate(chart.axes)]

    def parts(self) -> Iterator[Markup]:
        """Yield the lines, the best last so that it lies on top, then the axes."""
        *others, best = sorted(range(len(self.dots)), key=lambda place: -self.dots[place].y)
        if len(others) > MANY:
            size, look = -(-len(others) // _SHEETS), "par dense" if len(others) > _CURVED else "par"
            for at in range(0, len(others), size):
                sheet = others[at : at + size]
                trials = runs([self.dots[place] for place in sheet])
                yield element("path", d="".join(map(self._route, sheet)), class_=look, data_trials=trials)
        else:
            yield from (linked(self.dots[place], "path", d=self._route(place), class_="par") for place in others)
        yield linked(self.dots[best], "path", d=self._route(best), class_="par best-line")
        yield from (column.drawn for column in self.columns)

    def _route(self, place: int) -> str:
        shift = (self.dots[place].y / max(1, len(self.dots) - 1) - 0.5) * _SPREAD
        stops = [(column.x, column.crossed[place] + shift * column.spread) for column in self.columns]
        if len(self.dots) > _CURVED:
            return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in stops)
        path = "M{} {}".format(*map(short, stops[0]))
        for (x1, y1), (x2, y2) in pairwise(stops):
            bend = 0.45 * (x2 - x1)
            path += "C" + " ".join(map(short, (x1 + bend, y1, x2 - bend, y2, x2, y2)))
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A drawn axis at its place, with the position at which each trial crosses it."""

    x: float
    crossed: Sequence[float]
    spread: float
    drawn: Markup

    @classmethod
    def of(cls, axis: ChoiceAxis | NumberAxis, x: float) -> _Column:
        match axis:
            case ChoiceAxis():
                last = max(1, len(axis.words) - 1)
                y = Scale(Axis(title="", low=0.0, high=last), _BOTTOM - _INSET, _TOP + _INSET)
                crossed = [y(code) for code in axis.codes]
                gap = (_BOTTOM - _TOP - 2 * _INSET) / last  # lines must not reach the next choice
                marks = [text(x - 9, y(at) + 4, word, "halo ink-text", "end") for at, word in enumerate(axis.words)]
                scale_data = {"data_words": "|".join(axis.words), "data_low": "0", "data_high": str(last)}
                drawn = _axis(axis.name, axis.label, x, y, marks, scale_data)
                return cls(x=x, crossed=crossed, spread=min(1.0, gap / (2.5 * _SPREAD)), drawn=drawn)
            case NumberAxis():
                y = Scale(axis.axis, _BOTTOM, _TOP)
                marks = [
                    mark
                    for at, label in y.ticks(7)
                    for mark in (line(x, y(at), x + 4, y(at), "tick"), text(x + 9, y(at) + 4, label, "halo"))
                ]
                unit, _ = divisor(axis.axis)
                scale_data = {"data_low": f"{axis.axis.low / unit:.6g}", "data_high": f"{axis.axis.high / unit:.6g}"}
                drawn = _axis(axis.name, title_of(axis.axis), x, y, marks, scale_data)
                return cls(x=x, crossed=[y(value) for value in axis.values], spread=0.0, drawn=drawn)


def _axis(name: str, label: str, x: float, y: Scale, marks: Sequence[Markup], scale_data: dict[str, str]) -> Markup:
    first, *rest = wrap(label, _LETTERS, max_lines=2, placeholder=" …")
    return element(
        "g",
        line(x, _TOP, x, _BOTTOM, "axis"),
        text(x, 12 if rest else 26, first, "strong", "middle"),
        *(text(x, 26, words, "strong", "middle") for words in rest),
        *marks,
        rect(x - 16, _TOP - 10, 32, _BOTTOM - _TOP + 20, "par-hit"),
        class_="par-axis",
        data_axis=name,
        data_at=x,
        data_bottom=y.start,
        data_top=y.end,
        **scale_data,
    )
