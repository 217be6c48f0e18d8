"""Two choices at a time: the best of the layouts that have both values, for every pair of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.layout import Layout
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.search.results.axis import AXES, Axis, Value, axis_named, varied
from autotuner.search.results.choices import Choices, Importance, choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All trials whose layouts have two values.

    Attributes:
        value: What the best of them reached, by the objective of the sweep; None where none has a rank.
        mfu: MFU of that one.
        trial_id: The trial of that one; of the first that was tried where none has a rank, None where none was.
        number: Of that trial, inside its sweep.
        num_ranked: Trials with a rank.
        num_failed: Trials that died.
    """

    row: Value
    column: Value
    value: float | None
    mfu: float | None
    trial_id: str | None
    number: int | None
    num_ranked: int
    num_failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Every pair of values of two choices that trials had.

    Attributes:
        row_name: The choice of the rows, for addresses: ``tp``.
        row_label: The same for people.
        column_name: The choice of the columns, for addresses.
        column_label: The same for people.
        rows: Values of the rows in their order.
        columns: Values of the columns in their order.
        cells: Row by row.
        names: Choices that rows and columns may show: those on which tried layouts differ.
    """

    row_name: str
    row_label: str
    column_name: str
    column_label: str
    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    cells: tuple[tuple[Cell, ...], ...]
    names: tuple[str, ...]


def two_that_matter(importance: Sequence[Importance], layouts: Sequence[Layout]) -> tuple[str, str]:
    """Names of the two choices to show first: those that explain most; of one that varies, it and the next."""
    names = [one.name for one in importance]
    names += [axis.name for axis in varied(layouts) if axis.name not in names]
    names += [name for name in ("tp", "pp") if name not in names]
    first, second = sorted(names[:2], key=[*AXES].index)
    return first, second


def mattered(
    request: SweepRequest, trials: Sequence[Trial], row: str | None = None, column: str | None = None
) -> tuple[Choices, Grid]:
    """What mattered, and two choices at a time: those that are named, else those that matter most.

    Raises:
        InvalidInput: There is no such choice.
    """
    found = choices(request, trials)
    first, second = two_that_matter(found.importance, [trial.layout for trial in trials])
    return found, grid(request, trials, row or first, column or second)


def grid(request: SweepRequest, trials: Sequence[Trial], row: str, column: str) -> Grid:
    """The best of every pair of values of two choices.

    Raises:
        InvalidInput: There is no such choice.
    """
    down, across = axis_named(row), axis_named(column)
    tried = [trial for trial in trials if trial.repeats is None and trial.state in _TRIED]
    by_pair: dict[tuple[Value, Value], list[Trial]] = {}
    for trial in tried:
        by_pair.setdefault((down.read(trial.layout), across.read(trial.layout)), []).append(trial)
    rows, columns = _values(down, tried), _values(across, tried)
    return Grid(
        row_name=down.name,
        row_label=down.label,
        column_name=across.name,
        column_label=across.label,
        rows=rows,
        columns=columns,
        cells=tuple(tuple(_cell(y, x, by_pair.get((y, x), []), request) for x in columns) for y in rows),
        names=tuple(axis.name for axis in varied([trial.layout for trial in tried])),
    )


_TRIED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)


def _values(axis: Axis, tried: Sequence[Trial]) -> tuple[Value, ...]:
    return axis.in_order(axis.read(trial.layout) for trial in tried)


def _cell(row: Value, column: Value, trials: Sequence[Trial], request: SweepRequest) -> Cell:
    ranked = request.objective.ranked(trials)
    shown = (*ranked, *trials, None)[0]
    reached = ranked[0].reached if ranked else None
    return Cell(
        row=row,
        column=column,
        value=request.objective.value(reached) if reached else None,
        mfu=request.objective.counted(reached).mfu if reached else None,
        trial_id=shown.id if shown else None,
        number=shown.number if shown else None,
        num_ranked=len(ranked),
        num_failed=sum(trial.failure is not None for trial in trials),
    )
