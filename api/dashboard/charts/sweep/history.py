"""Best so far: what each trial reached, the best up to it, and what was expected to be found still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from api.dashboard.charts.drawing import Frame, Scale, path, picture, text, whole_marks
from api.dashboard.charts.spread import best_so_far, staircase, turns
from api.dashboard.charts.sweep.marks import MANY, At, TrialPoint, cloud, crosses, linked_dot

_MOST_BEYOND = 1.35
"""The band of the first trials may reach far; this much above the best is shown of it."""

_ROOM_FOR_WORDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """A trial that was better than all before it."""

    point: TrialPoint
    position: int
    """Counts trials from 1, in the order they ran."""
    mfu: float
    gain: float | None
    """Over the best before it; None for the first."""


def improvements(points: Sequence[TrialPoint]) -> tuple[Improvement, ...]:
    """Trials that raised the best so far, in the order they ran."""
    found: list[Improvement] = []
    for position, point in enumerate(points, 1):
        mfu, before = point.mfu, found[-1].mfu if found else None
        if mfu is not None and (before is None or mfu > before):
            gain = None if before is None else mfu / before - 1
            found.append(Improvement(point=point, position=position, mfu=mfu, gain=gain))
    return tuple(found)


def history(points: Sequence[TrialPoint], width: int, *, remaining_gain: float | None = None) -> Markup | None:
    """The picture; None where no trial has a result.

    Args:
        points: Trials that ended, in the order they ran.
        width: Pixels that it is drawn for.
        remaining_gain: Share that one more trial is expected to gain; None where nobody knows.
    """
    drawn = _History.of(points, width, remaining_gain)
    return None if drawn is None else picture(width, drawn.frame.height, drawn.parts(), drawn.said, has_links=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    points: Sequence[TrialPoint]
    best: Sequence[float | None]
    remaining_gain: float | None
    frame: Frame
    x: Scale
    y: Scale

    @classmethod
    def of(cls, points: Sequence[TrialPoint], width: int, remaining_gain: float | None) -> _History | None:
        values = [mfu for point in points if (mfu := point.mfu) is not None]
        if not values:
            return None
        frame = Frame(width=width, height=330, right=100 if width > _ROOM_FOR_WORDS else 12)
        best = best_so_far(point.mfu for point in points)
        gains = [point.expected_gain or 0.0 for point in points] + [remaining_gain or 0.0]
        top = max(values) * min(1 + max(gains), _MOST_BEYOND)
        margin = 0.06 * (top - min(values)) or 0.05 * top
        return cls(
            points=points,
            best=best,
            remaining_gain=remaining_gain,
            frame=frame,
            x=frame.across(1, len(points) + 0.5, inset=8),
            y=frame.upward(max(0.0, min(values) - 3 * margin), top + margin),
        )

    @property
    def said(self) -> str:
        return f"Best MFU so far against trials: {100 * self.most:.1f} % after {len(self.points)} trials."

    @property
    def most(self) -> float:
        return max(value for value in self.best if value is not None)

    def parts(self) -> Iterator[Markup]:
        yield from self.frame.share_rules(self.y)
        yield from self._band()
        yield from self._results()
        yield from self._failures()
        yield path(staircase(self._stairs()), "m-step")
        yield from self._rises()
        marks = whole_marks(1, len(self.points), 6 if self.frame.width > _ROOM_FOR_WORDS else 5)
        yield from self.frame.ground(self.x, marks, "{:.0f}".format)
        yield from self.frame.titles("MFU, %", "trials, in the order they ran")
        yield from self._words()

    def _stairs(self) -> list[tuple[float, float]]:
        """The best after each trial that raised it, and after the last."""
        rises = [(self.x(rise.position), self.y(rise.mfu)) for rise in improvements(self.points)]
        return [*rises, (self.x(len(self.points) + 0.5), self.y(self.most))]

    def _band(self) -> Iterator[Markup]:
        """From the best so far to what was expected to be found."""
        ends = self._expected()
        if len(ends) < 2:
            return
        upper = staircase(turns([(at, self.y.clamped(high)) for at, _, high in ends]))
        lower = staircase(turns([(at, self.y(low)) for at, low, _ in ends]))
        yield path([*upper, *reversed(lower)], "p-band")
        yield path(upper, "p-line")

    def _expected(self) -> list[tuple[float, float, float]]:
        """After each trial: where it stands, the best, and what was expected of others when the next was chosen."""
        ends = [
            (self.x(position), best, best * (1 + after.expected_gain))
            for position, (best, after) in enumerate(zip(self.best, self.points[1:], strict=False), 1)
            if best is not None and after.expected_gain is not None
        ]
        if ends and self.remaining_gain is not None:
            ends.append((self.x(len(self.points) + 0.5), self.most, self.most * (1 + self.remaining_gain)))
        return ends

    def _results(self) -> Iterator[Markup]:
        places = [at for at in self._places() if at[0].mfu is not None]
        if len(places) > MANY:
            yield cloud(places, "m-cloud")
        else:
            yield from (linked_dot(at, 2.8, "m-dot soft", _percent(at[0])) for at in places)

    def _rises(self) -> Iterator[Markup]:
        for rise in improvements(self.points):
            at = (rise.point, self.x(rise.position), self.y(rise.mfu))
            is_best = rise.mfu == self.most
            class_ = "m-dot win" if is_best else "m-dot"
            yield linked_dot(at, 4.2 if is_best else 3.2, class_, _percent(rise.point), is_stop=True)

    def _failures(self) -> Iterator[Markup]:
        at = self.frame.floor - 9
        yield from crosses([(point, x, at) for point, x, _ in self._places() if point.failure])

    def _places(self) -> list[At]:
        floor = self.frame.floor
        return [
            (point, self.x(position), floor if point.mfu is None else self.y(point.mfu))
            for position, point in enumerate(self.points, 1)
        ]

    def _words(self) -> Iterator[Markup]:
        yield from self._failed_words()
        incumbent = next((at for at in self._places() if at[0].is_incumbent and at[0].mfu is not None), None)
        if incumbent is not None:
            yield text(incumbent[1] + 6, incumbent[2] + 18, "runs today", "halo accent-text")
        if self.frame.width <= _ROOM_FOR_WORDS:
            return
        right, best = self.frame.end + 8, self.y(self.most)
        yield text(right, best + 5, f"{100 * self.most:.1f} %", "win-text")
        yield text(right, best + 20, "best so far")
        if self.remaining_gain is not None:
            above = min(best - 14, self.y.clamped(self.most * (1 + self.remaining_gain)) - 4)
            yield text(right, above - 14, f"{100 * self.remaining_gain:.1f} % more", "strong")
            yield text(right, above, "expected next")

    def _failed_words(self) -> Iterator[Markup]:
        num_failed = sum(1 for point in self.points if point.failure)
        if num_failed:
            place = self.x(len(self.points)), self.frame.floor - 18
            yield text(*place, f"✕ no result: {num_failed}", "halo bad-text", "end")


def _percent(point: TrialPoint) -> str:
    return "no result" if point.mfu is None else f"{100 * point.mfu:.1f} % MFU"
