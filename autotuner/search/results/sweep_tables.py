"""SweepTables: tables of the sweeps that people look at, each computed once until a trial changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from autotuner.core.sweep import Sweep, SweepRequest
from autotuner.core.trial import Trial, TrialsVersion
from autotuner.search.compute import ComputeService
from autotuner.search.predicted_ranking import BestLayouts, ComparedBy, best_predicted
from autotuner.search.results.trial_table import TableRow, ranked_rows, untried_rows
from autotuner.search.space.trainers import trial_rules

T = TypeVar("T")

NUM_PREDICTED = 1000
"""Number of layouts, the best by prediction, that tables and charts of a sweep contain."""

_MOST = 64
"""Number of sweeps whose predictions are cached, some hundred kilobytes each."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SweepTrials:
    """All trials of a sweep as read at one moment, with a cache of values that were computed from them.

    The trials do not include the measurements of single steps.
    """

    version: TrialsVersion
    trials: tuple[Trial, ...]
    _known: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return a value that is computed from these trials. A value that is in the cache is not computed again.

        Args:
            key: Key of the value in the cache; it must include everything else that the value depends on.
            work_out: Function that computes the value and has no side effects.
        """
        if key not in self._known:
            self._known[key] = work_out()
        return cast("T", self._known[key])


class SweepTables:
    """Makes the tables of ranked and of untried layouts of sweeps. Helper processes predict the layouts.

    Any thread may use one object.
    """

    def __init__(self, compute: ComputeService) -> None:
        self._compute = compute
        self._mutex = threading.Lock()
        self._predicted: OrderedDict[str, BestLayouts] = OrderedDict()

    def ranked(self, sweep: Sweep, trials: SweepTrials) -> tuple[TableRow, ...]:
        """Return a table row for each trial of the sweep that has a rank, best first."""
        return trials.once("ranked", lambda: ranked_rows(sweep.request, trials.trials))

    def untried(self, informed: Sweep, trials: SweepTrials) -> tuple[TableRow, ...]:
        """Return table rows of layouts that no trial of a sweep has tried, the best predicted ones first.

        Args:
            informed: The sweep, after the measurements of its trials were used to correct its predictions.
            trials: The trials of the sweep.

        Raises:
            TooCostly: Predicting the search space of the sweep would take too long.
            Busy: Too many requests wait already.
        """
        predicted = self.predicted(informed)
        return trials.once("untried", lambda: untried_rows(informed.request, predicted.rows, trials.trials))

    def knows(self, sweep: Sweep) -> bool:
        """Return True if the predictions of the sweep's space are in the cache, so that tables need no computation."""
        with self._mutex:
            return sweep.id in self._predicted

    def predicted(self, informed: Sweep) -> BestLayouts:
        """Return the best predicted layouts of a sweep's space, and how many layouts are legal and fit in memory.

        The result is computed in a helper process and then cached. The method raises the same errors as ``untried``.

        Args:
            informed: The sweep, whose job is calibrated by its trials.
        """
        with self._mutex:
            if informed.id in self._predicted:
                self._predicted.move_to_end(informed.id)
                return self._predicted[informed.id]
        found = self._compute.search(predicted_best, informed.request)
        with self._mutex:
            self._predicted[informed.id] = found
            while len(self._predicted) > _MOST:
                self._predicted.popitem(last=False)
        return found


def predicted_best(request: SweepRequest) -> BestLayouts:
    """Return the best predicted layouts of a sweep's space; empty if the sweep only measures a given layout."""
    if request.challenge is not None and not request.challenge.searches:
        return BestLayouts(num_legal=0, num_fitting=0, rows=(), caveats=(), unchanged=None, nearest=None)
    job, rules = request.trial_job, trial_rules(request.trainer)
    compared = ComparedBy(objective=request.objective, trace=request.fault_trace)
    return best_predicted(job, request.space, limit=NUM_PREDICTED, rules=rules, compared_by=compared)
