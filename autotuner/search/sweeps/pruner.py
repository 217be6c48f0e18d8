"""LosingPruner: ends a trial whose first steps already lose."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from autotuner.core.objective import Metric

if TYPE_CHECKING:
    from optuna.study import Study

HEALTHY_VALUE = "healthy_value"
"""User attribute of an Optuna trial: what its healthy steps are worth, where its value is what faults left of it. Where
a front is looked for, by each of its metrics."""


class LosingPruner(BasePruner):
    """Prunes when the best value a trial reported stays below a fraction of the best finished trial's value.

    The best report, not the last, so that one disturbed step ends no good trial. For studies that maximise. Reports are
    of healthy steps, and compared with what the healthy steps of finished trials are worth.

    Args:
        fraction: Of the best value; 0.0 never prunes.
        min_reports: Reports to wait for.
    """

    def __init__(self, fraction: float, *, min_reports: int = 2) -> None:
        self._fraction = fraction
        self._min_reports = min_reports

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial should end now."""
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        values: list[float] = [t.user_attrs.get(HEALTHY_VALUE, t.value) for t in finished if t.value is not None]
        reports = trial.intermediate_values.values()
        if not values or len(reports) < self._min_reports:
            return False
        return max(reports) < self._fraction * max(values)

    def falls_behind(
        self, reports: Sequence[Sequence[float]], finished: Iterable[Sequence[float]], metrics: Sequence[Metric]
    ) -> bool:
        """Whether the trial should end now where values by several metrics make a front.

        It should when a finished trial would be as good in everything even if the best report were that much faster.

        Args:
            reports: Values by each metric, of each step.
            finished: The same of trials that ended well.
            metrics: Of the front.
        """
        if len(reports) < self._min_reports or not self._fraction:
            return False
        best = max(reports, key=tuple)  # the fastest: what is no rate is the same in all
        reachable = [value / self._fraction if m.is_rate else value for value, m in zip(best, metrics, strict=True)]
        return any(all(map(operator.ge, other, reachable)) for other in finished)
