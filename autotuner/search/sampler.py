"""LayoutSampler: an Optuna sampler over a finite table of legal layouts whose cost has been predicted.

Optuna sees one categorical parameter per layout field; the sampler always picks a whole row, so a proposal is
legal by construction. The first proposals are the best predicted rows. Then it alternates between the row furthest
from everything tried, which teaches most, and the best row after correcting the predictions by what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from autotuner.costmodel.columns import LayoutColumns
from autotuner.domain.choice import Choice
from autotuner.domain.layout import LAYOUT_FIELDS, Layout
from autotuner.search.correction import correction
from autotuner.search.margin import allowed_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from optuna.study import Study

__all__ = ["OUT_OF_MEMORY", "STEP_TIME_S", "LayoutSampler", "params_of"]

OUT_OF_MEMORY = "out_of_memory"
"""User attribute of an Optuna trial: it ran out of memory."""

STEP_TIME_S = "step_time_s"
"""User attribute of an Optuna trial: its measured step time, also of a pruned one."""

_NUM_FIRST_BEST = 2
"""Proposals that trust the prediction before exploring starts."""

_GROUP_WEIGHT = 4
"""A field that changes which ranks talk to each other separates two layouts more than any other field."""

_GROUP_FIELDS = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "data_parallel_replicate_degree",
    "data_parallel_shard_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
    "micro_batch_size",
)


def params_of(layout: Layout) -> dict[str, Any]:
    """The layout as Optuna parameters: integers, booleans and words."""
    values = ((name, getattr(layout, name)) for name in LAYOUT_FIELDS)
    return {name: value.label if isinstance(value, Choice) else value for name, value in values}


class LayoutSampler(BaseSampler):
    """Proposes untried rows of a table of layouts.

    Args:
        layouts: Every legal layout.
        predicted_step_s: Predicted step time of each row.
        predicted_bytes: Predicted peak memory of each row.
        limit_bytes: Rows predicted above it are not proposed; trials that run out of memory lower it.
        seed: Decides between rows that are equally good; the same seed and answers give the same proposals.
    """

    def __init__(
        self,
        layouts: LayoutColumns,
        *,
        predicted_step_s: NDArray[np.float64],
        predicted_bytes: NDArray[np.float64],
        limit_bytes: float,
        seed: int = 0,
    ) -> None:
        self._layouts = layouts
        self._codes = np.stack([np.asarray(getattr(layouts, name), dtype=np.int64) for name in LAYOUT_FIELDS], axis=1)
        self._predicted_step_s = predicted_step_s
        self._predicted_bytes = predicted_bytes
        self._limit_bytes = limit_bytes
        self._seed = seed
        self._row_of_trial: dict[int, int | None] = {}

    # ------------------------------------------------------------------ what Optuna calls
    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """One categorical distribution per layout field, over the values that occur in the table."""
        choices: dict[str, BaseDistribution] = {}
        for position, name in enumerate(LAYOUT_FIELDS):
            _, first = np.unique(self._codes[:, position], return_index=True)
            values = [params_of(self._layouts.row(int(index)))[name] for index in first]
            choices[name] = CategoricalDistribution(values)
        return choices

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All fields are sampled together."""
        del study, trial
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next row to try; nothing when every row was tried or is predicted not to fit."""
        del search_space
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        row = self.next_row(others, trial.number)
        return {} if row is None else params_of(self._layouts.row(row))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Fields cannot be drawn one by one: most combinations are illegal.

        Raises:
            ValueError: Always; reached when no row is left, or for a parameter that is no layout field.
        """
        del study, trial, param_distribution
        raise ValueError(f"no layout is left to propose, or {param_name!r} is no layout field")

    # ------------------------------------------------------------------ the choice
    def next_row(self, trials: Sequence[FrozenTrial], number: int) -> int | None:
        """The row that trial ``number`` should try after ``trials``; None when none is left."""
        tried = self._rows(trials)
        open_rows = self._predicted_bytes <= self._allowed_bytes(tried)
        open_rows[list(tried)] = False
        candidates = np.flatnonzero(open_rows)
        if candidates.size == 0:
            return None
        expected_s = self._predicted_step_s * correction(self._codes, self._log_errors(tried))
        if number >= _NUM_FIRST_BEST and number % 2 == 0:
            candidates = self._furthest(candidates, list(tried))
        # Equal costs are common (options that do nothing here); the seed decides among them.
        jitter = np.random.default_rng([self._seed, number]).random(candidates.size)
        return int(candidates[np.lexsort((jitter, expected_s[candidates]))[0]])

    def _rows(self, trials: Sequence[FrozenTrial]) -> dict[int, FrozenTrial]:
        """Rows of the table that have a trial, by row; parameters not in the table are skipped."""
        rows = {}
        for trial in trials:
            params = trial.params or trial.system_attrs.get("fixed_params", {})
            if trial.number not in self._row_of_trial:
                self._row_of_trial[trial.number] = self._find(params)
            row = self._row_of_trial[trial.number]
            if row is not None:
                rows[row] = trial
        return rows

    def _find(self, params: Mapping[str, Any]) -> int | None:
        if set(params) != set(LAYOUT_FIELDS):
            return None
        found = np.ones(len(self._codes), dtype=bool)
        for position, name in enumerate(LAYOUT_FIELDS):
            found &= self._codes[:, position] == _code(name, params[name])
        rows = np.flatnonzero(found)
        return int(rows[0]) if rows.size else None

    def _allowed_bytes(self, tried: Mapping[int, FrozenTrial]) -> float:
        ran = (TrialState.COMPLETE, TrialState.PRUNED)
        return allowed_bytes(
            self._limit_bytes,
            (
                (float(self._predicted_bytes[row]), bool(trial.user_attrs.get(OUT_OF_MEMORY)))
                for row, trial in tried.items()
                if trial.state in ran or trial.user_attrs.get(OUT_OF_MEMORY)
            ),
        )

    def _log_errors(self, tried: Mapping[int, FrozenTrial]) -> dict[int, float]:
        return {
            row: float(np.log(trial.user_attrs[STEP_TIME_S] / self._predicted_step_s[row]))
            for row, trial in tried.items()
            if STEP_TIME_S in trial.user_attrs
        }

    def _furthest(self, candidates: NDArray[np.intp], tried: list[int]) -> NDArray[np.intp]:
        """The candidates whose nearest tried row differs in most (weighted) fields."""
        if not tried:
            return candidates
        weights = np.array([_GROUP_WEIGHT if name in _GROUP_FIELDS else 1 for name in LAYOUT_FIELDS])
        nearest = np.full(candidates.size, np.iinfo(np.int64).max)
        for row in tried:
            distance = (self._codes[candidates] != self._codes[row]) @ weights
            nearest = np.minimum(nearest, distance)
        furthest: NDArray[np.intp] = candidates[nearest == nearest.max()]
        return furthest


def _code(name: str, value: Any) -> int:
    default = Layout.__dataclass_fields__[name].default
    return int(type(default).from_label(value, name)) if isinstance(default, Choice) else int(value)
