"""What mattered: how much of the differences each choice explains, and what it did in otherwise equal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, LayoutColumns
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.explain.pairwise import Insight, insights
from autotuner.search.results.axis import Axis, Value, varied
from autotuner.search.results.importance import shares_explained

_FEWEST = 8
"""Layouts below which what explains their differences is chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value of a choice.

    Attributes:
        num_ranked: Ranked layouts that have it.
        best_value: What the best of them reached, by the objective of the sweep.
        best_trial_id: The trial of that one.
    """

    value: Value
    num_ranked: int
    best_value: float
    best_trial_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """A choice on which ranked layouts differ.

    Attributes:
        name: The choice, for addresses: ``tp``.
        label: The choice, for people.
        alone: Share of the variance of log throughput that its values tell apart by themselves, 0..1.
        beyond_others: Share that nothing tells apart any more once this choice is left out, 0..1. Choices that go
            together, as degrees with one product do, explain much alone and little beyond the others. 0 where the
            layouts are too few to tell all choices apart.
        share: Mean of the two, by which choices are ordered.
        levels: Its values in their order.
    """

    name: str
    label: str
    alone: float
    beyond_others: float
    share: float
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What mattered among the ranked trials of a sweep.

    Attributes:
        num_ranked: Ranked layouts that this rests on.
        explained: Share of the variance of log throughput that all choices together explain, each on its own terms;
            the rest is what choices do to one another, and noise. None of too few layouts to tell.
        importance: What explains most first; with shares of 0 of too few layouts.
        effects: What changes of one choice did to otherwise equal layouts that ran whole, the largest median first.
    """

    num_ranked: int
    explained: float | None
    importance: tuple[Importance, ...]
    effects: tuple[Insight, ...]


def choices(request: SweepRequest, trials: Sequence[Trial]) -> Choices:
    """What mattered, by the trials of a sweep."""
    ranked = request.objective.ranked(trials)
    axes = varied([trial.layout for trial in ranked])
    log_value = np.log([request.objective.value(trial.reached) for trial in ranked if trial.reached])
    is_enough = len(ranked) >= _FEWEST
    shares = shares_explained([_codes(axis, ranked) for axis in axes], log_value) if is_enough and axes else None
    found = [
        Importance(
            name=axis.name,
            label=axis.label,
            alone=shares.alone[index] if shares else 0.0,
            beyond_others=shares.beyond_others[index] if shares else 0.0,
            share=(shares.alone[index] + shares.beyond_others[index]) / 2 if shares else 0.0,
            levels=_levels(axis, ranked, request),
        )
        for index, axis in enumerate(axes)
    ]
    return Choices(
        num_ranked=len(ranked),
        explained=shares.together if shares else None,
        importance=tuple(sorted(found, key=lambda one: -one.share)),
        effects=_effects(trials, request),
    )


def _codes(axis: Axis, ranked: Sequence[Trial]) -> Floats:
    """One column for each value but the first: 1 where a layout has it."""
    values = [axis.read(trial.layout) for trial in ranked]
    levels = axis.in_order(values)[1:]
    columns: Floats = np.array([[value == level for level in levels] for value in values], dtype=np.float64)
    return columns


def _levels(axis: Axis, ranked: Sequence[Trial], request: SweepRequest) -> tuple[Level, ...]:
    """The values, each with the first of the ranked trials that has it."""
    by_value: dict[Value, list[Trial]] = {}
    for trial in ranked:
        by_value.setdefault(axis.read(trial.layout), []).append(trial)
    return tuple(_level(value, by_value[value], request) for value in axis.in_order(by_value))


def _level(value: Value, ranked: Sequence[Trial], request: SweepRequest) -> Level:
    best = ranked[0]
    assert best.reached is not None, "it has a rank"
    reached = request.objective.value(best.reached)
    return Level(value=value, num_ranked=len(ranked), best_value=reached, best_trial_id=best.id)


def _effects(trials: Sequence[Trial], request: SweepRequest) -> tuple[Insight, ...]:
    """Of pairs of layouts that were measured themselves: estimates of two layouts share what they were made of."""
    whole = [trial for trial in trials if trial.scaled is None and trial.repeats is None]
    counted = request.objective.counted
    measured = [(trial.layout, counted(trial.measurement).step_time_s) for trial in whole if trial.measurement]
    layouts = LayoutColumns.from_layouts(layout for layout, _ in measured)
    found = insights([(layouts, np.array([seconds for _, seconds in measured], dtype=np.float64))])
    return tuple(sorted((one for one in found if one.num_pairs), key=lambda one: -abs(one.median_gain or 0.0)))
