"""All choices at once: parallel coordinates, a line per trial, the best in front.

Every axis tells a script its scale (``data-low`` .. ``data-high`` from ``data-bottom`` to ``data-top``), so that a
brush on it needs nothing but the picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

from markupsafe import Markup

from api.dashboard.charts.drawing import Scale, byte_unit, element, in_percent, line, picture, rect, text, written
from api.dashboard.charts.sweep.marks import MANY, TrialPoint, by_rank, linked, listed

WIDTH, HEIGHT = 1296, 300
"""Pixels; a narrow screen scrolls the picture."""

_TOP, _BOTTOM, _LEFT, _RIGHT = 50, 278, 84, 56
_INSET = 14
"""Pixels between the end of an axis and its first or last choice."""

_SPREAD = 16.0
"""Pixels over which lines through the same choice are spread by rank, so that one sees how many they are."""

_SHEETS = 20
"""Paths that many lines share: within one, lines that cross are no darker, across them they are."""

_WORDS = 17
"""Characters of a line of an axis's name."""

_CURVED = 200
"""Lines up to which each is a curve; more are straight, at half the weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceAxis:
    """A choice of layouts."""

    name: str
    """For scripts and addresses: ``tp``."""
    label: str
    """For people."""
    words: tuple[str, ...]
    """Its values, the lowest first."""
    codes: tuple[int, ...]
    """The place among these of each trial, in the order of the trials."""

    @property
    def ends(self) -> tuple[float, float]:
        """The places of the lowest and the highest choice."""
        return 0.0, float(max(1, len(self.words) - 1))

    @property
    def marks(self) -> tuple[tuple[float, str], ...]:
        """Each choice."""
        return tuple((float(place), word) for place, word in enumerate(self.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberAxis:
    """Something that was measured."""

    name: str
    label: str
    values: tuple[float, ...]
    """Of each trial, in the unit of the label."""
    ends: tuple[float, float]
    marks: tuple[tuple[float, str], ...]
    """Round numbers with their labels."""


ParallelAxis = ChoiceAxis | NumberAxis


def parallel_axes(points: Sequence[TrialPoint], choices: Sequence[ChoiceAxis]) -> tuple[ParallelAxis, ...]:
    """The choices, then memory where somebody measured it, then MFU.

    Args:
        points: Trials with a result.
        choices: Codes in the order of the points.
    """
    memory = [_memory_axis(points)] if any(point.shown_bytes for point in points) else []
    return (*choices, *memory, _mfu_axis(points))


def _memory_axis(points: Sequence[TrialPoint]) -> NumberAxis:
    divisor, unit = byte_unit(max(point.shown_bytes for point in points))
    values = tuple(point.shown_bytes / divisor for point in points)
    marks = _round_marks(values)
    return NumberAxis(
        name="memory",
        label=f"memory, {unit}",
        values=values,
        ends=_ends(values),
        marks=tuple((mark, f"{mark:g}") for mark in marks),
    )


def _mfu_axis(points: Sequence[TrialPoint]) -> NumberAxis:
    values = tuple(100 * (point.mfu or 0.0) for point in points)
    marks = _round_marks(values)
    labels = in_percent([mark / 100 for mark in marks])
    ends = _ends(values)
    return NumberAxis(
        name="mfu", label="MFU, %", values=values, ends=ends, marks=tuple(zip(marks, labels, strict=True))
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    margin = 0.04 * (max(values) - min(values)) or 0.05 * max(values)
    return min(values) - margin, max(values) + margin


def _round_marks(values: Sequence[float]) -> tuple[float, ...]:
    return Scale(*_ends(values), 0, 1).marks(7)


def parallel(points: Sequence[TrialPoint], axes: Sequence[ParallelAxis]) -> Markup | None:
    """The picture; None of fewer than two trials with a result, which no picture need tell apart.

    Args:
        points: Trials with a result, in the order of the values of the axes.
        axes: From left to right; the last one is MFU.
    """
    if len(points) < 2 or len(axes) < 2:
        return None
    label = f"Every choice, memory and MFU of {len(points)} trials as lines; the best is in front."
    return picture(WIDTH, HEIGHT, _Parallel.of(points, axes).parts(), label, has_links=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parallel:
    points: Sequence[TrialPoint]
    axes: Sequence[ParallelAxis]
    columns: Sequence[_Column]

    @classmethod
    def of(cls, points: Sequence[TrialPoint], axes: Sequence[ParallelAxis]) -> _Parallel:
        """The axes as far apart as the width allows."""
        x = Scale(0, len(axes) - 1, _LEFT, WIDTH - _RIGHT)
        columns = [_Column.of(axis, x(place)) for place, axis in enumerate(axes)]
        return cls(points=points, axes=axes, columns=columns)

    def parts(self) -> Iterator[Markup]:
        yield from self._lines()
        for axis, column in zip(self.axes, self.columns, strict=True):
            yield element("g", *_drawn(axis, column.x), class_="par-axis", **_told(axis, column.x))

    def _lines(self) -> Iterator[Markup]:
        """From the slowest to the best, which is painted last."""
        ranks = {point.number: rank for rank, (point, _) in enumerate(by_rank(self.points))}
        places = sorted(range(len(self.points)), key=lambda place: -ranks[self.points[place].number])
        *others, best = places
        if len(others) > MANY:
            class_ = "par dense" if len(others) > _CURVED else "par"
            size = -(-len(others) // _SHEETS)
            yield from (self._sheet(others[at : at + size], ranks, class_) for at in range(0, len(others), size))
        else:
            yield from (self._linked(place, ranks, "par") for place in others)
        yield self._linked(best, ranks, "par best-line")

    def _sheet(self, places: Sequence[int], ranks: dict[int, int], class_: str) -> Markup:
        numbers = listed(self.points[place].number for place in places)
        routes = "".join(self._route(place, ranks) for place in places)
        return element("path", d=routes, class_=class_, data_trials=numbers)

    def _linked(self, place: int, ranks: dict[int, int], class_: str) -> Markup:
        point = self.points[place]
        drawn = element("path", d=self._route(place, ranks), class_=class_)
        return linked(point, drawn, f"{100 * (point.mfu or 0.0):.1f} % MFU", is_stop="best-line" in class_)

    def _route(self, place: int, ranks: dict[int, int]) -> str:
        shift = (ranks[self.points[place].number] / max(1, len(self.points) - 1) - 0.5) * _SPREAD
        stops = [(column.x, column.y(place, shift)) for column in self.columns]
        return _curve(stops) if len(self.points) <= _CURVED else _straight(stops)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """Where an axis stands, and where each trial crosses it."""

    x: float
    crossed: tuple[float, ...]
    spread: float

    @classmethod
    def of(cls, axis: ParallelAxis, x: float) -> _Column:
        """Lines through one choice are spread as far as the next choice leaves them room."""
        scale = _scale(axis)
        match axis:
            case ChoiceAxis():
                gap = (_BOTTOM - _TOP - 2 * _INSET) / max(1, len(axis.words) - 1)
                places = [scale(code) for code in range(len(axis.words))]
                crossed = tuple(places[code] for code in axis.codes)
                return cls(x=x, crossed=crossed, spread=min(1.0, gap / (2.5 * _SPREAD)))
            case NumberAxis():
                return cls(x=x, crossed=tuple(map(scale, axis.values)), spread=0.0)

    def y(self, place: int, shift: float) -> float:
        """Where the line of a trial crosses."""
        return self.crossed[place] + shift * self.spread


def _scale(axis: ParallelAxis) -> Scale:
    inset = _INSET if isinstance(axis, ChoiceAxis) else 0
    return Scale(*axis.ends, _BOTTOM - inset, _TOP + inset)


def _drawn(axis: ParallelAxis, x: float) -> Iterator[Markup]:
    y = _scale(axis)
    yield line(x, _TOP, x, _BOTTOM, "axis")
    first, *rest = wrap(axis.label, _WORDS, max_lines=2, placeholder=" …")
    yield text(x, 12 if rest else 26, first, "strong", "middle")
    yield from (text(x, 26, words, "strong", "middle") for words in rest)
    for at, label in axis.marks:
        match axis:
            case ChoiceAxis():
                yield text(x - 9, y(at) + 4, label, "halo ink-text", "end")
            case NumberAxis():
                yield line(x, y(at), x + 4, y(at), "tick")
                yield text(x + 9, y(at) + 4, label, "halo")
    yield rect(x - 16, _TOP - 10, 32, _BOTTOM - _TOP + 20, "par-hit")


def _told(axis: ParallelAxis, x: float) -> dict[str, str | float]:
    """What a brush needs to know."""
    y, (low, high) = _scale(axis), axis.ends
    words = {"data_words": "|".join(axis.words)} if isinstance(axis, ChoiceAxis) else {}
    return {
        **words,
        "data_axis": axis.name,
        "data_at": x,
        "data_low": f"{low:.6g}",
        "data_high": f"{high:.6g}",
        "data_bottom": y(low),
        "data_top": y(high),
    }


def _straight(stops: Sequence[tuple[float, float]]) -> str:
    return "M" + " ".join(f"{x:.0f} {y:.0f}" for x, y in stops)


def _curve(stops: Sequence[tuple[float, float]]) -> str:
    parts = [f"M{written(stops[0][0])} {written(stops[0][1])}"]
    for (x1, y1), (x2, y2) in pairwise(stops):
        bend = 0.45 * (x2 - x1)
        parts.append("C" + " ".join(map(written, (x1 + bend, y1, x2 - bend, y2, x2, y2))))
    return "".join(parts)
