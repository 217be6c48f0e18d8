"""Time against cost of a plan's clusters, both axes logarithmic: all are predicted, so that dots are rings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, circle, for_both, line, path, picture, text
from api.dashboard.charts.spread import staircase
from autotuner.search.planning.plan import Candidate
from autotuner.search.planning.request import Goal
from autotuner.search.planning.words import days, money, within

_S_PER_DAY = 86_400.0
_LETTER = 6.8
"""Pixels of a letter at 12 px, about, with room beside the word."""

_ROW = 16.0
"""Pixels between the base lines of two names."""

_STEPS = (1, 2, 5)
"""Round values within a decade."""

_CLOSE_STEPS = (1, 1.5, 2, 3, 5, 7)


def plan_front(contenders: Sequence[Candidate], goal: Goal, wide: int) -> Markup:
    """The picture for a desk and for a phone; nothing where one cluster alone is compared, or none has a price."""
    priced = [one for one in contenders if one.predicted.cost.median > 0]
    if len(priced) < 2:
        return Markup("")
    return for_both(lambda width: _Drawn.of(priced, goal, width).picture, wide)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    """The picture at one width."""

    contenders: Sequence[Candidate]
    """The one to take first."""
    goal: Goal
    frame: Frame
    x: Scale
    """Logarithms of days."""
    y: Scale
    """Logarithms of dollars."""

    @classmethod
    def of(cls, contenders: Sequence[Candidate], goal: Goal, width: int) -> Self:
        frame = Frame(width=width, height=400, left=58, right=20, top=30, bottom=44)
        times_s = [one.predicted.time_s.median for one in contenders]
        costs = [one.predicted.cost.median for one in contenders]
        low, high = contenders[0].predicted.cost.low, contenders[0].predicted.cost.high
        return cls(
            contenders=contenders,
            goal=goal,
            frame=frame,
            x=frame.across(_log_days(0.8 * min(times_s)), _log_days(1.25 * max(times_s))),
            y=frame.upward(math.log10(min(0.75 * min(costs), low)), math.log10(max(1.3 * max(costs), high))),
        )

    @property
    def picture(self) -> Markup:
        """All of it."""
        said = f"Predicted time against cost of {len(self.contenders)} clusters, with the front and its 80 % intervals"
        return picture(self.frame.width, self.frame.height, self._parts(), said)

    def _parts(self) -> Iterator[Markup]:
        front = sorted((one for one in self.contenders if one.is_on_front), key=lambda one: one.predicted.time_s.median)
        first = self.contenders[0]
        named = [first, *(one for one in front if one is not first)]
        yield from self._axes()
        yield from self._limits()
        yield from (self._interval(one) for one in named)
        yield path(staircase([self._at(one) for one in front]), "p-line")
        for one in reversed(self.contenders):
            yield circle(*self._at(one), 5 if one.is_on_front or one is first else 3, self._class(one), _said(one))
        yield from self._names(named)

    def _names(self, named: Sequence[Candidate]) -> Iterator[Markup]:
        """Above their dots, as far as no name covers another."""
        taken: list[tuple[float, float, float]] = []
        for one in named:
            x, y = self._at(one)
            half = _LETTER * len(one.cluster) / 2
            x = min(max(x, self.frame.left + half), self.frame.end - half)
            if any(abs(y - other_y) < _ROW and abs(x - other_x) < half + other for other_x, other_y, other in taken):
                continue
            taken.append((x, y, half))
            yield text(x, y - 10, one.cluster, "halo win-text" if one is named[0] else "halo ink-text", "middle")

    def _class(self, one: Candidate) -> str:
        return "p-dot win" if one is self.contenders[0] else "p-dot"

    def _at(self, one: Candidate) -> tuple[float, float]:
        return self.x(_log_days(one.predicted.time_s.median)), self.y(math.log10(one.predicted.cost.median))

    def _interval(self, one: Candidate) -> Markup:
        """The 80 % interval, as far as the plot reaches: time and cost err together, so that it is a diagonal."""
        x, y = _log_days(one.predicted.time_s.median), math.log10(one.predicted.cost.median)
        reach = math.log10(one.predicted.time_s.high / one.predicted.time_s.median)
        up = min(reach, self.x.high - x, self.y.high - y)
        down = min(reach, x - self.x.low, y - self.y.low)
        return path([(self.x(x - down), self.y(y - down)), (self.x(x + up), self.y(y + up))], "p-cloud")

    def _limits(self) -> Iterator[Markup]:
        """The deadline and the price limit where they lie inside the plot."""
        if self.goal.deadline_s and self.x.low <= _log_days(self.goal.deadline_s) <= self.x.high:
            at = self.x(_log_days(self.goal.deadline_s))
            yield line(at, self.frame.top, at, self.frame.floor, "limit")
            yield text(at - 4, self.frame.top + 10, "deadline", "bad-text halo", "end")
        if self.goal.price_limit and self.y.low <= math.log10(self.goal.price_limit) <= self.y.high:
            at = self.y(math.log10(self.goal.price_limit))
            yield line(self.frame.left, at, self.frame.end, at, "limit")
            yield text(self.frame.end, at - 5, "price limit", "bad-text halo", "end")

    def _axes(self) -> Iterator[Markup]:
        for mark in _marks(self.y):
            yield line(self.frame.left, self.y(math.log10(mark)), self.frame.end, self.y(math.log10(mark)), "rule")
            yield text(self.frame.left - 8, self.y(math.log10(mark)) + 4, money(mark), anchor="end")
        marks = [math.log10(mark) for mark in _marks(self.x)]
        yield from self.frame.ground(self.x, marks, lambda at: f"{10**at:.3g}")
        yield from self.frame.titles("cost, predicted", "days, predicted")


def _marks(scale: Scale) -> list[float]:
    """Round values inside a logarithmic scale; more of them where it spans less than a decade."""
    powers = range(math.floor(scale.low), math.ceil(scale.high) + 1)
    steps = _STEPS if scale.high - scale.low > 1 else _CLOSE_STEPS
    found = [step * 10.0**power for power in powers for step in steps]
    return [mark for mark in found if scale.low <= math.log10(mark) <= scale.high]


def _log_days(seconds: float) -> float:
    return math.log10(seconds / _S_PER_DAY)


def _said(one: Candidate) -> str:
    time_s, cost = one.predicted.time_s, one.predicted.cost
    return f"{one.cluster}: {days(time_s.median)}, {money(cost.median)}, {within(time_s.low, time_s.high)}"
