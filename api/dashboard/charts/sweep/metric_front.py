"""Two metrics against each other: what no other layout beats in everything, the steps between, and what is behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.axis import decimals
from api.dashboard.charts.frame import Frame
from api.dashboard.charts.scale import Scale
from api.dashboard.charts.stairs import staircase
from api.dashboard.charts.svg import line, path, picture, text
from api.dashboard.charts.sweep.labels import Label, placed
from api.dashboard.charts.sweep.marks import MANY, At, cloud, linked_dot
from api.dashboard.charts.sweep.points import TrialPoint
from autotuner.core.objective import Metric
from autotuner.core.units import GIGA, KILO, MEGA

_MOST_LABELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedPoint:
    """A trial with its values by two metrics.

    Attributes:
        is_first: First by the profile.
    """

    point: TrialPoint
    upward: float
    across: float
    is_on_front: bool
    is_first: bool


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
    """What to divide values by, and what the title then says behind the metric's name."""
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
