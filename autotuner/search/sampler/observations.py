"""Observations: what the trials of an Optuna study tell about the rows of a table of layouts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from autotuner.core.columns import Floats, Integers, LayoutColumns
from autotuner.core.errors import InvalidInput
from autotuner.core.layout import OPTIONS, Layout
from autotuner.search.sampler.priors import MemoryTrial

OUT_OF_MEMORY = "out_of_memory"
"""Name of a user attribute of an Optuna trial: True if the trial ran out of memory."""

STEP_TIME_S = "step_time_s"
"""Name of a user attribute of an Optuna trial: its measured step time, also of a pruned trial."""

PEAK_BYTES = "peak_bytes"
"""Name of a user attribute of an Optuna trial: peak bytes that the rank with most memory had allocated."""


FULL_SIZE = "full_size"
"""Name of a user attribute of an Optuna trial: True if it ran the layout itself. Without the attribute, a trial of a
sampler with proxies ran the proxy, and a trial of any other sampler ran the layout."""


@dataclass(frozen=True, kw_only=True)
class SmallEvidence:
    """Results of a search's trials so far, by index of the layout in the table.

    Either all trials ran the full-size layouts, or all were proxy trials, which run smaller layouts in their place.
    """

    pending: tuple[int, ...] = ()
    """Rows whose trial waits or runs now."""
    step_time_s: Mapping[int, float] = field(default_factory=dict)
    """Measured step times by row, also of pruned trials. For a row with several runs, the geometric mean of the
    runs."""
    memory: Mapping[int, MemoryTrial] = field(default_factory=dict)
    """Memory results of the rows that ran or ran out of memory."""
    completed: frozenset[int] = frozenset()
    """Rows whose trial completed."""


@dataclass(frozen=True, kw_only=True)
class Evidence(SmallEvidence):
    """Results of trials of full-size layouts so far; ``small`` has those of proxy trials (smaller layouts)."""

    tried: frozenset[int]
    """Rows that have a trial of any state and size, and rows equal to them."""
    best_value: float | None
    """Best value of the completed trials; None before the first."""
    small: SmallEvidence = field(default_factory=SmallEvidence)


class EvidenceReader:
    """Converts the trials of an Optuna study into results by index of the layout in a table.

    Args:
        layouts: The table of layouts.
        value_per_step: For each row, the product of the objective value and the step time. With it, either of the two
            can be computed from the other.
        allowance_bytes: Part of each row's predicted peak that a measured peak does not include.
        small_allowance_bytes: Function that returns this part for the proxy trial of a row (a smaller trial in its
            place); None: trials run the layouts themselves.
        same_trial: A number for each row. Rows with the same number share one trial. None: each row has its own trial.
    """

    def __init__(
        self,
        layouts: LayoutColumns,
        *,
        value_per_step: Floats,
        allowance_bytes: Floats,
        small_allowance_bytes: Callable[[int], float] | None = None,
        same_trial: Integers | None = None,
    ) -> None:
        self._layouts = layouts
        self._value_per_step = value_per_step
        self._allowance_bytes = allowance_bytes
        self._small_allowance_bytes = small_allowance_bytes
        self._same_trial = same_trial
        self._rows: dict[tuple[Any, ...], Integers] = {}

    def read(self, trials: Iterable[FrozenTrial], promised: Mapping[int, Mapping[str, Any]] | None = None) -> Evidence:
        """Return the results of Optuna trials, by index of their layout in the table.

        Trials whose parameters match no layout of the table are ignored.

        Args:
            trials: Trials of one study.
            promised: Parameters by trial number, for trials whose parameters Optuna has not stored completely yet.

        Raises:
            InvalidInput: A step time or a peak is not positive. Or a trial has no step time, and its value is not
                positive.
        """
        tried: set[int] = set()
        full, small = _Told(), _Told()
        for trial in trials:
            rows = self._rows_of(_params(trial, promised or {}))
            if not rows.size:
                continue
            row, measured = int(rows[0]), STEP_TIME_S in trial.user_attrs
            if self._same_trial is not None:
                rows = np.flatnonzero(self._same_trial == self._same_trial[row])
            tried.update(map(int, rows))
            if self._small_allowance_bytes is None or trial.user_attrs.get(FULL_SIZE, False):
                memory = _memory(trial, float(self._allowance_bytes[row]))
                full.add(trial, row, self._step_time_s(trial, row), memory)
            else:  # the value of such a trial is an estimate from its step time, so only the measured step time counts
                memory = _memory(trial, self._small_allowance_bytes(row))
                small.add(trial, row, _positive(trial, STEP_TIME_S) if measured else None, memory)
        found = full.fields()
        values = (self._value_per_step[row] / found["step_time_s"][row] for row in full.completed)
        best_value = max(values, default=None)
        return Evidence(tried=frozenset(tried), best_value=best_value, small=SmallEvidence(**small.fields()), **found)

    def _rows_of(self, params: Mapping[str, Any]) -> Integers:
        """Return all rows of the table with this layout."""
        if set(params) != set(OPTIONS):
            return np.empty(0, dtype=np.int64)
        key = tuple(params[name] for name in OPTIONS)
        if key not in self._rows:
            rows = np.arange(len(self._layouts))
            for name, one in OPTIONS.items():
                rows = rows[getattr(self._layouts, name)[rows] == int(one.from_plain(params[name]))]
            self._rows[key] = rows
        return self._rows[key]

    def _step_time_s(self, trial: FrozenTrial, row: int) -> float | None:
        if STEP_TIME_S in trial.user_attrs:
            return _positive(trial, STEP_TIME_S)
        value = _objective_value(trial)
        return None if value is None else float(self._value_per_step[row] / value)


@dataclass(kw_only=True)
class _Told:
    """The results so far of trials of one size."""

    pending: list[int] = field(default_factory=list)
    times_s: dict[int, list[float]] = field(default_factory=dict)  # one value for each run of a row
    memory: dict[int, MemoryTrial] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)

    def fields(self) -> dict[str, Any]:
        """Return the results as keyword arguments of ``SmallEvidence``.

        A row with several runs has their mean, because the shortest run may be a lucky one.
        """
        step_time_s = {row: t[0] if len(t) == 1 else statistics.geometric_mean(t) for row, t in self.times_s.items()}
        completed = frozenset(self.completed)
        return {
            "pending": tuple(self.pending),
            "step_time_s": step_time_s,
            "memory": self.memory,
            "completed": completed,
        }

    def add(self, trial: FrozenTrial, row: int, step_time_s: float | None, memory: MemoryTrial | None) -> None:
        if not trial.state.is_finished():
            self.pending.append(row)
        if step_time_s is not None:
            self.times_s.setdefault(row, []).append(step_time_s)
            if trial.state == TrialState.COMPLETE:
                self.completed.add(row)
        if memory is not None:
            self.memory[row] = memory


def _memory(trial: FrozenTrial, allowance_bytes: float) -> MemoryTrial | None:
    if trial.user_attrs.get(OUT_OF_MEMORY):
        return MemoryTrial(fits=False)
    if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None  # the trial died before its memory could be judged
    if PEAK_BYTES not in trial.user_attrs:
        return MemoryTrial(fits=True)
    return MemoryTrial(fits=True, peak_bytes=_positive(trial, PEAK_BYTES) + allowance_bytes)


def params_of(layout: Layout) -> dict[str, Any]:
    """Return the layout as Optuna parameters: integers, booleans and words."""
    return {name: one.to_plain(getattr(layout, name)) for name, one in OPTIONS.items()}


def _params(trial: FrozenTrial, promised: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the layout of a trial as Optuna parameters.

    An enqueued trial has them as fixed parameters, and a trial that was just requested has them in parts.
    """
    if len(trial.params) == len(OPTIONS):
        return trial.params
    asked = {} if trial.state.is_finished() else promised.get(trial.number, {})
    return asked or trial.system_attrs.get("fixed_params", {})


def _positive(trial: FrozenTrial, name: str) -> float:
    value = float(trial.user_attrs[name])
    if not 0 < value < math.inf:
        raise InvalidInput(name, value, f"must be above 0; it is a user attribute of trial {trial.number}")
    return float(value)


def _objective_value(trial: FrozenTrial) -> float | None:
    """Return the value that the trial returned, or reported before it was pruned."""
    if trial.state == TrialState.COMPLETE:
        # of several values, it is unknown which one is a rate
        value = trial.values[0] if len(trial.values) == 1 else None
    elif trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = statistics.median(trial.intermediate_values.values())
    else:
        return None
    if value is None or not 0 < value < math.inf:
        rule = f"must be above 0, unless the trial has the user attribute {STEP_TIME_S}"
        raise InvalidInput("value", value, rule)
    return float(value)
