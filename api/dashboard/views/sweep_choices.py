"""What choices did, as the pages of a sweep show it: effects, importance, pairs of choices, all choices at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from markupsafe import Markup

from api.dashboard.charts.svg import for_both
from api.dashboard.charts.sweep.effects import Effect, effects
from api.dashboard.charts.sweep.importance import Explained, importance
from api.dashboard.charts.sweep.parallel import ChoiceAxis, ParallelAxis, parallel, parallel_axes
from api.dashboard.charts.sweep.points import TrialPoint
from autotuner.core.layout import Layout
from autotuner.search.explain.pairwise import Insight
from autotuner.search.results.axis import varied
from autotuner.search.results.choices import Choices
from autotuner.search.results.grid import Cell, Grid

_MOST_EFFECTS = 10
_MOST_CHOICES = 8
_MOST_AXES = 8
"""More axes stand too close for their words, and weigh more than all else."""

_FIRST = ("tp", "pp", "dp", "cp", "mb", "sharding", "recompute")

_SHADES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectsView:
    """What mattered.

    Attributes:
        effects: What single changes gained; None without a pair.
        importance: What each choice explains; None of too few trials.
        rows: The effects that are drawn, as a table has them.
        num_others: Effects that have no room.
    """

    effects: Markup | None
    importance: Markup | None
    rows: tuple[Effect, ...]
    explained: float | None
    num_ranked: int
    num_others: int

    @classmethod
    def of(cls, found: Choices) -> Self:
        """Those with the largest medians, and the choices that explain most."""
        rows = tuple(_effect(one) for one in found.effects if one.num_pairs)
        shown = rows[:_MOST_EFFECTS]
        explained = [
            Explained(name=one.label, least=one.beyond_others, most=max(one.alone, one.beyond_others), share=one.share)
            for one in found.importance[:_MOST_CHOICES]
            if one.share > 0
        ]
        return cls(
            effects=for_both(lambda width: effects(shown, width) or Markup("")) if shown else None,
            importance=for_both(lambda width: importance(explained, width) or Markup("")) if explained else None,
            rows=shown,
            explained=found.explained,
            num_ranked=found.num_ranked,
            num_others=len(rows) - len(shown),
        )


def _effect(found: Insight) -> Effect:
    change = f"{found.subject} {found.before} → {found.after}" if found.before else found.subject
    return Effect(
        name=change,
        median=found.median_gain or 0.0,
        low=found.least_gain or 0.0,
        high=found.greatest_gain or 0.0,
        num_faster=found.num_faster,
        num_pairs=found.num_pairs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """A pair of values.

    Attributes:
        class_: Its shade: ``h0`` the lowest, ``h4`` the best, ``hx`` without a result.
        said: Best MFU in percent; what came of it where nothing has a rank.
        href: The trial that is shown; empty where none was tried.
        words: All this for who does not see the shade.
    """

    class_: str
    said: str
    href: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatView:
    """The best of each pair of values of two choices."""

    grid: Grid
    cells: tuple[tuple[HeatCell, ...], ...]

    @classmethod
    def of(cls, found: Grid, *, root: str = "") -> Self:
        """Shades between the worst and the best cell."""
        shares = [cell.mfu for row in found.cells for cell in row if cell.mfu is not None]
        ends = (min(shares), max(shares)) if shares else (0.0, 0.0)
        cells = tuple(tuple(_heat_cell(cell, found, ends, root) for cell in row) for row in found.cells)
        return cls(grid=found, cells=cells)


def _heat_cell(cell: Cell, grid: Grid, ends: tuple[float, float], root: str) -> HeatCell:
    pair = f"{grid.row_label} {cell.row}, {grid.column_label} {cell.column}"
    href = f"{root}/trials/{cell.trial_id}" if cell.trial_id else ""
    if cell.mfu is None:
        said = "failed" if cell.num_failed else "–"
        return HeatCell(class_="hx", said=said, href=href, words=f"{pair}: {'failed' if href else 'not tried'}")
    words = f"{pair}: {100 * cell.mfu:.1f} % MFU, best of {cell.num_ranked}"
    return HeatCell(class_=_shade(cell.mfu, *ends), said=f"{100 * cell.mfu:.1f}", href=href, words=words)


def _shade(share: float, low: float, high: float) -> str:
    if share == high:
        return f"h{_SHADES}"
    return f"h{int(_SHADES * (share - low) / (high - low))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelView:
    """All choices at once.

    Attributes:
        axes: From left to right.
        left_out: Labels of choices that vary and have no room.
    """

    drawn: Markup
    axes: tuple[ParallelAxis, ...]
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, points: Sequence[TrialPoint], layouts: Sequence[Layout], found: Choices) -> Self | None:
        """Choices on which the layouts differ; None of fewer than two trials with a result.

        Args:
            points: Trials with a result.
            layouts: Of each of them.
            found: What mattered: beside what everybody asks of, choices that explain most are shown.
        """
        choices = _choice_axes(layouts)
        matter = [*_FIRST, *(one.name for one in found.importance if one.name not in _FIRST)]
        wanted = [name for name in matter if any(axis.name == name for axis in choices)][:_MOST_AXES]
        shown = [axis for axis in choices if axis.name in wanted]
        axes = parallel_axes(points, shown) if points else ()
        drawn = parallel(points, axes)
        if drawn is None:
            return None
        return cls(drawn=drawn, axes=axes, left_out=tuple(axis.label for axis in choices if axis not in shown))


def _choice_axes(layouts: Sequence[Layout]) -> tuple[ChoiceAxis, ...]:
    axes = []
    for axis in varied(layouts):
        values = [axis.read(layout) for layout in layouts]
        order = axis.in_order(values)
        places = {value: place for place, value in enumerate(order)}
        words, codes = tuple(map(str, order)), tuple(places[value] for value in values)
        axes.append(ChoiceAxis(name=axis.name, label=axis.label, words=words, codes=codes))
    return tuple(axes)
