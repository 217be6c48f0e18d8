"""LosingPruner: ends a trial whose first steps already lose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from optuna.study import Study

__all__ = ["HEALTHY_VALUE", "LosingPruner"]

HEALTHY_VALUE = "healthy_value"
"""User attribute of an Optuna trial: what its healthy steps are worth, where its value is what faults left of that."""


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
