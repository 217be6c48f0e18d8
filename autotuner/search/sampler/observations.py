"""What the trials of an Optuna study tell about the rows of a table of layouts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from autotuner.costmodel.columns import Floats, Integers, LayoutColumns
from autotuner.domain.layouts.layout import LAYOUT_FIELDS, OPTIONS, Layout
from autotuner.errors import InvalidInput
from autotuner.search.sampler.memory_prior import MemoryTrial

__all__ = ["OUT_OF_MEMORY", "PEAK_BYTES", "STEP_TIME_S", "Evidence", "EvidenceReader", "params_of"]

OUT_OF_MEMORY = "out_of_memory"
"""User attribute of an Optuna trial: it ran out of memory."""

STEP_TIME_S = "step_time_s"
"""User attribute of an Optuna trial: its measured step time, also of a pruned one."""

PEAK_BYTES = "peak_bytes"
"""User attribute of an Optuna trial: bytes that the fullest rank had allocated at its peak."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of some rows.

    Attributes:
        tried: Rows that have a trial, in whatever state, and rows equal to them.
        pending: Rows whose trial waits or runs.
        step_time_s: Measured, also of pruned trials.
        memory: Rows that ran or ran out of memory.
        best_value: Of the trials that ended well; None before the first.
    """

    tried: frozenset[int]
    pending: tuple[int, ...]
    step_time_s: Mapping[int, float]
    memory: Mapping[int, MemoryTrial]
    best_value: float | None


class EvidenceReader:
    """Finds the rows of trials and reads what came of them.

    Args:
        worth_per_step: Value x step time of each row: what turns one into the other.
        allowance_bytes: Part of each row's predicted peak that a measured peak does not see.
    """

    def __init__(self, layouts: LayoutColumns, *, worth_per_step: Floats, allowance_bytes: Floats) -> None:
        self._layouts = layouts
        self._worth_per_step = worth_per_step
        self._allowance_bytes = allowance_bytes
        self._rows: dict[tuple[Any, ...], Integers] = {}

    def read(self, trials: Iterable[FrozenTrial], promised: Mapping[int, Mapping[str, Any]] | None = None) -> Evidence:
        """What the trials tell; one whose parameters are no row of the table tells nothing.

        Args:
            trials: Trials of one study.
            promised: Parameters by trial number, for trials that Optuna has not yet stored all parameters of.

        Raises:
            InvalidInput: A trial's value is not positive and its step time is not given; or a step time or a peak is
                not positive.
        """
        tried: set[int] = set()
        pending, seconds, memory, completed = [], {}, {}, []
        for trial in trials:
            rows = self._rows_of(_params(trial, promised or {}))
            if not rows.size:
                continue
            row = int(rows[0])
            tried.update(rows.tolist())
            if not trial.state.is_finished():
                pending.append(row)
            if (step_time_s := self._step_time_s(trial, row)) is not None:
                seconds[row] = step_time_s
                if trial.state == TrialState.COMPLETE:
                    completed.append(self._worth_per_step[row] / step_time_s)
            if (fitted := self._memory(trial, row)) is not None:
                memory[row] = fitted
        return Evidence(
            tried=frozenset(tried),
            pending=tuple(pending),
            step_time_s=seconds,
            memory=memory,
            best_value=max(completed, default=None),
        )

    def _rows_of(self, params: Mapping[str, Any]) -> Integers:
        """Every row that is this layout."""
        if set(params) != set(LAYOUT_FIELDS):
            return np.empty(0, dtype=np.int64)
        key = tuple(params[name] for name in LAYOUT_FIELDS)
        if key not in self._rows:
            self._rows[key] = self._find(params)
        return self._rows[key]

    def _find(self, params: Mapping[str, Any]) -> Integers:
        rows = np.arange(len(self._layouts))
        for name in LAYOUT_FIELDS:
            rows = rows[getattr(self._layouts, name)[rows] == _value(name, params[name])]
        return rows

    def _step_time_s(self, trial: FrozenTrial, row: int) -> float | None:
        if STEP_TIME_S in trial.user_attrs:
            return _positive(trial, STEP_TIME_S)
        value = _objective_value(trial)
        return None if value is None else float(self._worth_per_step[row] / value)

    def _memory(self, trial: FrozenTrial, row: int) -> MemoryTrial | None:
        if trial.user_attrs.get(OUT_OF_MEMORY):
            return MemoryTrial(fits=False)
        if trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return None  # whatever it died of came before memory could tell
        if PEAK_BYTES not in trial.user_attrs:
            return MemoryTrial(fits=True)
        return MemoryTrial(fits=True, peak_bytes=_positive(trial, PEAK_BYTES) + float(self._allowance_bytes[row]))


def params_of(layout: Layout) -> dict[str, Any]:
    """The layout as Optuna parameters: integers, booleans and words."""
    return {name: one.plain(getattr(layout, name)) for name, one in OPTIONS.items()}


def _params(trial: FrozenTrial, promised: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The trial's layout; an enqueued trial has it as fixed parameters, and one just asked for has it in parts."""
    if len(trial.params) == len(LAYOUT_FIELDS):
        return trial.params
    asked = {} if trial.state.is_finished() else promised.get(trial.number, {})
    return asked or trial.system_attrs.get("fixed_params", {})


def _value(name: str, param: Any) -> int:
    return int(OPTIONS[name].from_plain(param, name))


def _positive(trial: FrozenTrial, name: str) -> float:
    value = float(trial.user_attrs[name])
    if not 0 < value < math.inf:
        raise InvalidInput(name, value, f"must be positive, as user attribute of trial {trial.number}")
    return value


def _objective_value(trial: FrozenTrial) -> float | None:
    """What the trial returned, or reported before it was pruned."""
    if trial.state == TrialState.COMPLETE:
        value = trial.value
    elif trial.state == TrialState.PRUNED and trial.intermediate_values:
        value = statistics.median(trial.intermediate_values.values())
    else:
        return None
    if value is None or not 0 < value < math.inf:
        rule = f"must be above 0, or the trial must carry its {STEP_TIME_S} as user attribute"
        raise InvalidInput("value", value, rule)
    return value
