"""Trials by two figures against each other, with the front of what no other beats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, byte_unit, decimals, line, path, picture, rect, text
from api.dashboard.charts.spread import staircase
from api.dashboard.charts.sweep.marks import (
    MANY,
    At,
    CloudPoint,
    Label,
    TrialPoint,
    by_rank,
    cloud,
    crosses,
    linked_dot,
    placed,
    scattered,
)
from autotuner.core.objective import Metric
from autotuner.core.units import GIGA, KILO, MEGA, format_bytes

# MFU against memory: results, the front of the best at each peak, the limit, what is predicted to fit.

_MOST_LABELS = 4


def on_front(points: Sequence[TrialPoint]) -> tuple[TrialPoint, ...]:
    """Trials that no other beats with no more memory, by rising memory and MFU."""
    front: list[TrialPoint] = []
    best = float("-inf")
    for point, reached in sorted(by_rank(points), key=lambda pair: (pair[0].shown_bytes, -pair[1].value)):
        if reached.value > best:
            best = reached.value
            front.append(point)
    return tuple(front)


def memory_front(
    points: Sequence[TrialPoint], width: int, *, limit_bytes: float | None, predicted: Sequence[CloudPoint] = ()
) -> Markup | None:
    """The picture; None where no trial has a result.

    Args:
        points: Trials that ended.
        width: Pixels that it is drawn for.
        limit_bytes: What a rank may use; None where nobody knows.
        predicted: Layouts that are predicted to fit and never ran.
    """
    if not by_rank(points):
        return None
    drawn = _Front.of(points, width, limit_bytes, predicted)
    return picture(width, drawn.frame.height, drawn.parts(), drawn.said, has_links=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    points: Sequence[TrialPoint]
    predicted: Sequence[CloudPoint]
    limit_bytes: float | None
    frame: Frame
    x: Scale
    y: Scale

    @classmethod
    def of(
        cls, points: Sequence[TrialPoint], width: int, limit: float | None, predicted: Sequence[CloudPoint]
    ) -> _Front:
        ranked = [point for point, _ in by_rank(points)]
        peaks = [point.shown_bytes for point in ranked]
        failed = [p.predicted_bytes for p in points if p.is_out_of_memory]
        shares = [point.mfu or 0.0 for point in ranked]
        # A limit far away from all would squeeze them into a corner: then the text says it.
        near = [limit] if limit is not None and (failed or limit < 3 * max(peaks)) else []
        cloud_bytes = [one.peak_bytes for one in predicted]
        high = max(*peaks, *cloud_bytes, *(min(value, 1.15 * (limit or value)) for value in failed), *near, 0.0)
        low = min(*peaks, *cloud_bytes, high)
        margin = 0.05 * (high - low) or 0.05 * high
        most = max(*shares, *(one.mfu for one in predicted), 0.0)
        least = min(*shares, *(one.mfu for one in predicted), most)
        above = 0.08 * (most - least) or 0.1 * most
        frame = Frame(width=width, height=330)
        return cls(
            points=points,
            predicted=predicted,
            limit_bytes=near[0] if near else None,
            frame=frame,
            x=frame.across(max(0.0, low - margin), high + margin * (1.8 if near else 1.0)),
            y=frame.upward(max(0.0, least - above), most + 1.6 * above),
        )

    @property
    def said(self) -> str:
        predicted = f", {len(self.predicted)} predicted" if self.predicted else ""
        return (
            f"MFU against peak memory: {len(by_rank(self.points))} layouts with a result{predicted}; "
            f"{len(on_front(self.points))} of them form the front."
        )

    def parts(self) -> Iterator[Markup]:
        frame = self.frame
        if self.limit_bytes is not None:
            beyond = self.x(self.limit_bytes)
            yield rect(beyond, frame.top, frame.end - beyond, frame.floor - frame.top, "beyond")
        yield from frame.share_rules(self.y)
        yield scattered(((self.x(one.peak_bytes), self.y(one.mfu)) for one in self.predicted), "p-cloud")
        divisor, unit = byte_unit(self.x.high)
        marks = Scale(self.x.low / divisor, self.x.high / divisor, frame.left, frame.end)
        yield from frame.ground(marks, marks.marks(7 if frame.width > 400 else 6), "{:g}".format)
        yield from frame.titles("MFU, %", f"peak memory of a rank, {unit}")
        yield from self._results()
        yield from self._limit()
        yield from self._labels()

    def _results(self) -> Iterator[Markup]:
        front = on_front(self.points)
        singled = {point.number for point in front}
        rest = [self._at(point) for point in self.points if point.mfu is not None and point.number not in singled]
        if len(rest) > MANY:
            yield cloud(rest, "m-cloud")
        else:
            yield from (linked_dot(at, 2.8, "m-dot soft", _said(at[0])) for at in rest)
        yield path(staircase([(x, y) for _, x, y in map(self._at, front)]), "m-front")
        for point in front:
            is_best = point is front[-1]
            class_ = "m-dot win" if is_best else "m-dot"
            yield linked_dot(self._at(point), 5 if is_best else 3.6, class_, _said(point), is_stop=True)

    def _at(self, point: TrialPoint) -> At:
        return point, self.x(point.shown_bytes), self.y(point.mfu or 0.0)

    def _limit(self) -> Iterator[Markup]:
        if self.limit_bytes is None:
            return
        at = self.x(self.limit_bytes)
        yield line(at, self.frame.top, at, self.frame.floor, "limit")
        said = f"limit {format_bytes(self.limit_bytes)}"
        yield text(at - 6, self.frame.floor - 8, said, "halo bad-text", "end")
        yield from crosses([self._beyond(point, self.limit_bytes) for point in self.points if point.is_out_of_memory])

    def _beyond(self, point: TrialPoint, limit: float) -> At:
        """A trial that ran out of memory lies past the limit, at what was predicted."""
        beside = self.x(limit) + 6 + 4 * (point.number % 4)  # those predicted to fit would hide each other
        x = min(max(self.x(point.predicted_bytes), beside), self.frame.end)
        return point, x, self.y.clamped(point.predicted.value)

    def _labels(self) -> Iterator[Markup]:
        """The best, and others of the front where there is room."""
        best, *others = reversed(on_front(self.points))
        wanted = [
            Label(words=point.name, x=x, y=y, class_="halo win-text" if point is best else "halo ink-text")
            for point, x, y in map(self._at, (best, *others))
        ]
        yield from placed(wanted, self.frame, _MOST_LABELS)


def _said(point: TrialPoint) -> str:
    return f"{100 * (point.mfu or 0.0):.1f} % MFU, {format_bytes(point.shown_bytes)}"


# Two metrics against each other: what no other layout beats in everything, the steps between, and what is behind.


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedPoint:
    """A trial with its values by two metrics."""

    point: TrialPoint
    upward: float
    across: float
    is_on_front: bool
    is_first: bool
    """First by the profile."""


def metric_front(points: Sequence[ValuedPoint], upward: Metric, across: Metric, width: int) -> Markup:
    """The picture of at least one trial."""
    drawn = _MetricFront.of(points, upward, across, width)
    return picture(width, drawn.frame.height, drawn.parts(), drawn.said, has_links=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetricFront:
    points: Sequence[ValuedPoint]
    upward: Metric
    across: Metric
    frame: Frame
    x: Scale
    y: Scale

    @classmethod
    def of(cls, points: Sequence[ValuedPoint], upward: Metric, across: Metric, width: int) -> _MetricFront:
        frame = Frame(width=width, height=330, left=44)
        x_ends, y_ends = _ends([one.across for one in points]), _ends([one.upward for one in points])
        x, y = frame.across(*x_ends), frame.upward(*y_ends)
        return cls(points=points, upward=upward, across=across, frame=frame, x=x, y=y)

    @property
    def said(self) -> str:
        num_on_front = sum(one.is_on_front for one in self.points)
        return (
            f"{self.upward.noun} against {self.across.noun}: {len(self.points)} layouts with a result; "
            f"{num_on_front} of them no other beats in everything."
        )

    def parts(self) -> Iterator[Markup]:
        frame = self.frame
        divisor, unit = _unit(self.upward, self.y.high)
        for at, words in _marks(self.y, divisor, 7):
            yield line(frame.left, self.y(at), frame.end, self.y(at), "rule")
            yield text(frame.left - 8, self.y(at) + 4, words, anchor="end")
        across, unit_across = _unit(self.across, self.x.high)
        marks = dict(_marks(self.x, across, 7 if frame.width > 400 else 5))
        yield from frame.ground(self.x, [*marks], lambda at: marks[at])
        yield from frame.titles(f"{self.upward.noun}{unit}", f"{self.across.noun}{unit_across}")
        yield from self._results()
        yield from self._labels()

    def _results(self) -> Iterator[Markup]:
        behind = [self._at(one) for one in self.points if not one.is_on_front]
        if len(behind) > MANY:
            yield cloud(behind, "m-cloud")
        else:
            yield from (linked_dot(self._at(one), 2.8, "m-dot soft", self._values(one)) for one in self._behind)
        yield path(staircase([(self.x(one.across), self.y(one.upward)) for one in self._steps()]), "m-front")
        for one in self.points:
            if one.is_on_front:
                class_ = "m-dot win" if one.is_first else "m-dot"
                yield linked_dot(self._at(one), 5 if one.is_first else 3.6, class_, self._values(one), is_stop=True)

    @property
    def _behind(self) -> Iterator[ValuedPoint]:
        return (one for one in self.points if not one.is_on_front)

    def _steps(self) -> list[ValuedPoint]:
        """Points that none beats in these two metrics, by falling ``across``: the others are here for a third."""
        steps: list[ValuedPoint] = []
        for one in sorted(self.points, key=lambda one: (-one.across, -one.upward)):
            if not steps or one.upward > steps[-1].upward:
                steps.append(one)
        return steps

    def _at(self, one: ValuedPoint) -> At:
        return one.point, self.x(one.across), self.y(one.upward)

    def _values(self, one: ValuedPoint) -> str:
        return f"{self.upward.in_words(one.upward)}, {self.across.in_words(one.across)}"

    def _labels(self) -> Iterator[Markup]:
        """The first by the profile, and others of the front where there is room; below what the stairs pass over."""
        steps = self._steps()
        on_front = sorted((one for one in self.points if one.is_on_front), key=lambda one: not one.is_first)
        labels = [
            Label(
                words=one.point.name,
                x=x,
                y=y,
                class_="halo win-text" if one.is_first else "halo ink-text",
                is_below=one not in steps,
            )
            for one in on_front
            for _, x, y in [self._at(one)]
        ]
        yield from placed(labels, self.frame, _MOST_LABELS, is_front=True)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: the values with a margin, and nothing below 0."""
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1 * high
    return max(0.0, low - margin), high + margin


def _unit(metric: Metric, most: float) -> tuple[float, str]:
    """Return the number to divide values by, and the words of the title behind the metric's name."""
    if metric in (Metric.MFU, Metric.ROBUSTNESS):
        return 0.01, ", %"
    if metric is Metric.SIMPLICITY:
        return 1.0, ""
    name = {Metric.TOKENS_PER_S: "token/s"}.get(metric, "")
    scales = ((GIGA, "G"), (MEGA, "M"), (KILO, "k"))
    divisor, prefix = next(((float(scale), prefix) for scale, prefix in scales if most >= scale), (1.0, ""))
    said = f"{prefix}{name}" if name else _WORDS[prefix]
    return divisor, f", {said}" if said else ""


_WORDS = {"": "", "k": "thousands", "M": "millions", "G": "billions"}


def _marks(scale: Scale, divisor: float, most: int) -> Iterator[tuple[float, str]]:
    """Round values of a scale with their words, in the unit of the axis."""
    marks = Scale(scale.low / divisor, scale.high / divisor, scale.start, scale.end).marks(most)
    digits = decimals(round(marks[1] - marks[0], 9)) if len(marks) > 1 else 2
    for at in marks:
        yield at * divisor, f"{at:.{digits}f}"
