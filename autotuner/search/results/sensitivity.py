"""Sensitivity: the differences that each choice explains, its effect in equal pairs, and tables of two choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.search.results.axis import AXES, Axis, Value, axis_named, varied_axes
from autotuner.search.results.pairs import PairEffect, pair_effects
from autotuner.search.results.reached import TRIED

_NOTHING = 1e-9
"""Share of a column's square below which its rest counts as rounding, because the column follows from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of the variance of some values that choices explain, 0..1: each choice, and all choices together."""

    alone: tuple[float, ...]
    """Share that each choice explains by itself."""
    beyond_others: tuple[float, ...]
    """Share that is lost if the choice is left out and all others stay."""
    together: float | None
    """Share that all choices together explain; None if there are as many effects as values, because that explains
    anything."""


def shares_explained(choices: Sequence[Floats], values: Floats) -> Shares:
    """Return the share of the variance of ``values`` that each choice explains, and the share that all explain.

    A linear model adds one effect for each value of each choice. The share of a choice is computed twice: with the
    choice as the first term of the model, and as the last term. These are the two ends of relative importance (Grömping
    2006, J. Statistical Software 17(1), *first* and *last*). Many effects can explain any few values by chance.
    Therefore both shares are adjusted for the number of effects, and are at least 0.

    Args:
        choices: One array per choice, with a column of 0 and 1 for each effect, and a row for each value.
        values: The values to explain; at least two.
    """
    centred = values - values.mean()
    columns = np.hstack([each - each.mean(axis=0) for each in choices])
    ends = np.cumsum([each.shape[1] for each in choices])
    own = [np.arange(end - each.shape[1], end) for each, end in zip(choices, ends, strict=True)]
    products, with_values = columns.T @ columns, columns.T @ centred
    fit = _Fit(products=products, with_values=with_values, total=float(centred @ centred), free=len(values) - 1)
    every = np.arange(columns.shape[1])
    together = fit.explained(every)
    whole = together or 0.0
    return Shares(
        alone=tuple(fit.explained(mine) or 0.0 for mine in own),
        beyond_others=tuple(max(0.0, whole - (fit.explained(np.setdiff1d(every, mine)) or 0.0)) for mine in own),
        together=together,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Fit:
    """Least squares over subsets of many columns, computed from the columns' products with each other."""

    products: Floats
    """Products of each column with each."""
    with_values: Floats
    """Products of each column with the values."""
    total: float
    """Sum of the squares of the values."""
    free: int
    """Number of values minus one for the mean."""

    def explained(self, columns: Integers) -> float | None:
        """Return the adjusted coefficient of determination; None if there are as many effects as values.

        Each column is made orthogonal to those before it (Gram-Schmidt), using only the products. Many small
        factorizations in a linear algebra library would instead spend their time on waiting between threads.
        """
        products, with_values = self.products[np.ix_(columns, columns)], self.with_values[columns]
        lengths, explained, num_effects = products.diagonal().copy(), 0.0, 0
        for index, length in enumerate(lengths):
            left = float(products[index, index])
            if left <= _NOTHING * length:
                continue
            explained, num_effects = explained + with_values[index] ** 2 / left, num_effects + 1
            share = products[index] / left
            with_values = with_values - share * with_values[index]
            products = products - np.outer(products[index], share)
        free = self.free - num_effects
        if free <= 0:
            return None
        if not self.total:
            return 0.0
        adjusted = 1 - (1 - float(explained) / self.total) * self.free / free
        return min(1.0, max(0.0, adjusted))  # rounding may pass both ends


# ---------------------------------------------------------------- choices
_FEWEST = 8
"""Fewest layouts for which an explanation of their differences is more than chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One value of an option, with the number of ranked layouts that have it and the best of these layouts."""

    value: Value
    num_ranked: int
    """Number of ranked layouts with this value of the choice."""
    best_value: float
    """Best value of the sweep's objective among these layouts."""
    best_trial: int
    """Number of the trial of the best of these layouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """The importance of one option: the share of the variance of throughput between layouts that it explains."""

    name: str
    """Name of the choice in URLs: ``tp``."""
    label: str
    """Label of the choice for people."""
    alone: float
    """Share of the variance of log throughput that the choice alone explains, 0..1."""
    beyond_others: float
    """Share that cannot be explained any more if this choice is left out, 0..1. Choices that depend on each other, as
    degrees with one product do, explain much alone and little beyond the others. 0 if there are too few layouts to
    separate all choices."""
    share: float
    """Mean of ``alone`` and ``beyond_others``, by which choices are ordered."""
    levels: tuple[Level, ...]
    """Values of the choice, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The influence of each option on the results of a sweep's ranked trials, as shares of the variance."""

    num_ranked: int
    """Number of ranked layouts that the figures are computed from."""
    explained: float | None
    """Share of the variance of log throughput that all choices together explain without interactions. The rest is
    interactions and noise. None for too few layouts."""
    importance: tuple[Importance, ...]
    """Importance of each choice, the highest first; with shares of 0 for too few layouts."""
    effects: tuple[PairEffect, ...]
    """Effects of changing one choice in otherwise equal full-size layouts, the largest median first."""


def choices(request: SweepRequest, trials: Sequence[Trial]) -> Choices:
    """Return how much each option influences the results (objective values) of a sweep's ranked trials.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep.
    """
    ranked = request.objective.ranked(trials)
    axes = varied_axes([trial.layout for trial in ranked])
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
    """Return one column for each value but the first: 1 where a layout has it."""
    values = [axis.read(trial.layout) for trial in ranked]
    levels = axis.in_order(values)[1:]
    columns: Floats = np.array([[value == level for level in levels] for value in values], dtype=np.float64)
    return columns


def _levels(axis: Axis, ranked: Sequence[Trial], request: SweepRequest) -> tuple[Level, ...]:
    """Return the values of a choice, each with the best of the ranked trials that has it."""
    by_value: dict[Value, list[Trial]] = {}
    for trial in ranked:
        by_value.setdefault(axis.read(trial.layout), []).append(trial)
    return tuple(
        Level(value=value, num_ranked=len(having), best_value=request.objective.value(reached), best_trial=best.number)
        for value in axis.in_order(by_value)
        if (having := by_value[value]) and (best := having[0]) and (reached := best.reached)
    )


def _effects(trials: Sequence[Trial], request: SweepRequest) -> tuple[PairEffect, ...]:
    """Return the effects in pairs of measured layouts.

    Estimates are not used, because estimates of two layouts share the same data.
    """
    whole = [trial for trial in trials if trial.repeats is None]
    counted = request.objective.counted
    measured = [(trial.layout, counted(trial.measurement).step_time_s) for trial in whole if trial.measurement]
    layouts = LayoutColumns.from_layouts(layout for layout, _ in measured)
    found = pair_effects([(layouts, np.array([seconds for _, seconds in measured], dtype=np.float64))])
    return tuple(sorted((one for one in found if one.num_pairs), key=lambda one: -abs(one.median_gain or 0.0)))


# ---------------------------------------------------------------- two choices at a time
@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a grid of two options: the results of all trials whose layouts have these values of both options."""

    row: Value
    column: Value
    value: float | None
    """Best value of the sweep's objective in the cell; None if no trial there has a rank."""
    mfu: float | None
    """MFU of the best trial in the cell."""
    trial: int | None
    """Number of the best trial in the cell; the first one tried if none has a rank; None if none was tried."""
    num_ranked: int
    """Number of trials in the cell with a rank."""
    num_failed: int
    """Number of trials in the cell that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of two options, one in rows and one in columns. Each cell has the best trial with this pair of values."""

    row_name: str
    """Name of the rows' choice in URLs: ``tp``."""
    row_label: str
    """Label of the rows for people."""
    column_name: str
    """Name of the columns' choice in URLs."""
    column_label: str
    """Label of the columns for people."""
    rows: tuple[Value, ...]
    """Values of the rows in their order."""
    columns: tuple[Value, ...]
    """Values of the columns in their order."""
    cells: tuple[tuple[Cell, ...], ...]
    """Cells of the grid, row by row."""
    names: tuple[str, ...]
    """Names of the choices that rows and columns may show: those in which the tried layouts differ."""


def two_that_matter(importance: Sequence[Importance], layouts: Sequence[Layout]) -> tuple[str, str]:
    """Return the names of the two options that a grid shows first: the most important ones, else others that vary.

    Args:
        importance: Importance of options, highest first.
        layouts: Layouts that were tried.
    """
    names = [one.name for one in importance]
    names += [axis.name for axis in varied_axes(layouts) if axis.name not in names]
    names += [name for name in ("tp", "pp") if name not in names]
    first, second = sorted(names[:2], key=[*AXES].index)
    return first, second


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChoices:
    """The importance of each option in a sweep, and a table of two options with the best trial in each cell."""

    choices: Choices
    """Importance of each choice, and its effect in otherwise equal pairs."""
    grid: Grid
    """Best layout for each pair of values of two choices: of the requested choices, otherwise of the most important
    ones."""


def sweep_choices(
    request: SweepRequest, trials: Sequence[Trial], row: str | None = None, column: str | None = None
) -> SweepChoices:
    """Return the importance of each option in a sweep, and a table of two options with the best trial in each cell.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep.
        row: Option of the rows of the table; None: one of the two most important options.
        column: Option of the columns of the table; None: the other of the two most important options.

    Raises:
        InvalidInput: There is no such option.
    """
    found = choices(request, trials)
    first, second = two_that_matter(found.importance, [trial.layout for trial in trials])
    return SweepChoices(choices=found, grid=grid(request, trials, row or first, column or second))


def grid(request: SweepRequest, trials: Sequence[Trial], row: str, column: str) -> Grid:
    """Return a table of two options that has, for every pair of their values, the best trial with these values.

    Args:
        request: The request of the sweep.
        trials: All trials of the sweep; repeats and trials that have not ended are left out.
        row: Option of the rows.
        column: Option of the columns.

    Raises:
        InvalidInput: There is no such option.
    """
    down, across = axis_named(row), axis_named(column)
    tried = [trial for trial in trials if trial.repeats is None and trial.state in TRIED]
    by_pair: dict[tuple[Value, Value], list[Trial]] = {}
    for trial in tried:
        by_pair.setdefault((down.read(trial.layout), across.read(trial.layout)), []).append(trial)
    rows = down.in_order(down.read(trial.layout) for trial in tried)
    columns = across.in_order(across.read(trial.layout) for trial in tried)
    return Grid(
        row_name=down.name,
        row_label=down.label,
        column_name=across.name,
        column_label=across.label,
        rows=rows,
        columns=columns,
        cells=tuple(tuple(_cell(y, x, by_pair.get((y, x), []), request) for x in columns) for y in rows),
        names=tuple(axis.name for axis in varied_axes([trial.layout for trial in tried])),
    )


def _cell(row: Value, column: Value, trials: Sequence[Trial], request: SweepRequest) -> Cell:
    ranked = request.objective.ranked(trials)
    shown = (*ranked, *trials, None)[0]
    reached = ranked[0].reached if ranked else None
    return Cell(
        row=row,
        column=column,
        value=request.objective.value(reached) if reached else None,
        mfu=request.objective.counted(reached).mfu if reached else None,
        trial=shown.number if shown else None,
        num_ranked=len(ranked),
        num_failed=sum(trial.failure is not None for trial in trials),
    )
