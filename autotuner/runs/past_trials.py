"""CalibrationCache: learns from the stored trials, and keeps what it learned until another trial ends."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotuner.core.cluster import SIMULATED
from autotuner.core.job import Calibration, Job
from autotuner.core.sweep import Sweep
from autotuner.core.trial import PastTrial
from autotuner.costmodel.calibration import calibrated_by_both
from autotuner.search.sampler.learnt_factors import Learnt, LearntCalibration

if TYPE_CHECKING:
    from autotuner.store.history import HistoryStore

_MOST = 512
"""Maximum number of answers kept. A team asks about fewer jobs, and looks at fewer sweeps, between the ends of two
trials."""


_MOST_TRIALS = 1000
"""Maximum number of past trials read for one kind of accelerator, the newest first; a prediction uses a tenth of
them."""

_OVERLAP_S = 60.0
"""Trials that ended up to this many seconds before the newest known trial are read again. The clocks of workers differ,
and the transaction of a trial that ended a little earlier may be committed a little later."""


@dataclass(slots=True)
class _Known:
    """The results of learning from all trials that had ended at one moment."""

    newest_at: float | None
    learnt: dict[str, Learnt] = field(default_factory=dict)
    """Results of learning by accelerator, for the accelerators that a caller asked for."""
    older: dict[str, Learnt] = field(default_factory=dict)
    """Results from before the newest trial ended, for accelerators that no caller has asked for since then."""
    calibrations: dict[tuple[Job, str | None], Calibration | None] = field(default_factory=dict)


class CalibrationCache:
    """A thread-safe cache of calibrations, the corrections that stored trials give to predicted step times and memory.

    The calibrations are computed again after another trial has ended.
    """

    def __init__(self, history: HistoryStore) -> None:
        self._history = history
        self._mutex = threading.Lock()
        self._known = _Known(newest_at=None)
        self._sweep_jobs: dict[str, Job] = {}

    def calibrated(self, job: Job, trainer: str | None = None) -> Job:
        """Return the job with its calibration (the correction of its predictions) refined by stored trials.

        Only trials on the same accelerator are used.

        Args:
            job: The job to predict. A job on a simulated cluster is returned unchanged, because the cost model itself
                made the step times of its trials.
            trainer: Name of the registered trainer that will run the job; None: the built-in decoder.
        """
        if job.cluster.engine == SIMULATED:
            return job
        with self._mutex:
            known, plain = self._up_to_date(), replace(job, calibration=None)
            if (plain, trainer) not in known.calibrations:
                if len(known.calibrations) >= _MOST:
                    known.calibrations.clear()
                learnt = self._learnt(known, job.cluster.accelerator.name)
                known.calibrations[plain, trainer] = learnt.calibrated(plain, trainer).calibration
            return calibrated_by_both(job, known.calibrations[plain, trainer])

    def informed(self, sweep: Sweep) -> Sweep:
        """Return the sweep with its predictions corrected by earlier trials, as the function ``informed`` does.

        The result is cached for each sweep.
        """
        if sweep.id not in self._sweep_jobs:
            if len(self._sweep_jobs) >= _MOST:
                self._sweep_jobs.clear()
            self._sweep_jobs[sweep.id] = self._informed(sweep).request.job
        return replace(sweep, request=replace(sweep.request, job=self._sweep_jobs[sweep.id]))

    def _informed(self, sweep: Sweep) -> Sweep:
        """Return the sweep with what was known from past trials when it was requested."""
        request, newest_at = sweep.request, self._history.newest_at()
        is_old = newest_at is None or newest_at >= sweep.created_at
        if is_old or not request.uses_history or request.runs_on.engine == SIMULATED:
            return informed(sweep, self._history)
        return replace(sweep, request=replace(request, job=self.calibrated(request.job, _trainer_of(sweep))))

    def calibrations(self, accelerator: str | None = None) -> Sequence[LearntCalibration]:
        """Return, for each platform, the corrections that its stored trials give to predictions, and the accuracy.

        A platform is an accelerator with its links and its software. The newest comes first. ``accelerator`` limits the
        result to platforms with this accelerator; None: all accelerators.
        """
        names = self._history.accelerators() if accelerator is None else [accelerator]
        with self._mutex:
            known = self._up_to_date()
            return [one for name in names for one in self._learnt(known, name).calibrations()]

    def _up_to_date(self) -> _Known:
        newest_at = self._history.newest_at()
        if newest_at != self._known.newest_at:
            self._known = _Known(newest_at=newest_at, older=self._known.older | self._known.learnt)
        return self._known

    def _learnt(self, known: _Known, accelerator: str) -> Learnt:
        if known.newest_at is None:
            return Learnt([])
        if accelerator not in known.learnt:
            until = math.nextafter(known.newest_at, math.inf)
            known.learnt[accelerator] = Learnt(self._trials(accelerator, known.older.get(accelerator), until))
        return known.learnt[accelerator]

    def _trials(self, accelerator: str, older: Learnt | None, until: float) -> Sequence[PastTrial]:
        """Return all past trials of an accelerator; only trials that were not known before are read."""
        if older is None or not older.past:
            return self._history.measured(accelerator, before=until, limit=_MOST_TRIALS)
        after = older.past[0].finished_at - _OVERLAP_S
        new = self._history.measured(accelerator, before=until, after=after, limit=_MOST_TRIALS)
        known = [trial for trial in older.past if trial.finished_at <= after]
        return [*new, *known][:_MOST_TRIALS]


def informed(sweep: Sweep, history: HistoryStore) -> Sweep:
    """Return the sweep with the predictions for its job corrected by earlier trials and by the request's measured runs.

    Only trials that had ended when the sweep was created are used, so the calibration never changes during the sweep.
    The stored sweep does not contain this calibration. Therefore two equal requests stay equal even if a trial was
    measured between them.
    """
    return _informed_by(sweep, _learnt_before(sweep, history))


def informed_with_trials(sweep: Sweep, history: HistoryStore) -> tuple[Sweep, tuple[PastTrial, ...]]:
    """Return the sweep with its predictions corrected (see ``informed``), and the past trials that its search uses."""
    learnt = _learnt_before(sweep, history)
    return _informed_by(sweep, learnt), learnt.relevant(sweep.request.trial_job, _trainer_of(sweep))


def _learnt_before(sweep: Sweep, history: HistoryStore) -> Learnt:
    request = sweep.request
    if not request.uses_history or request.runs_on.engine == SIMULATED:
        return Learnt([])
    return Learnt(history.measured(request.job.cluster.accelerator.name, before=sweep.created_at))


def _informed_by(sweep: Sweep, learnt: Learnt) -> Sweep:
    request = sweep.request
    job = calibrated_by_both(learnt.calibrated(request.job, _trainer_of(sweep)), request.job.calibration)
    return replace(sweep, request=replace(request, job=job))


def _trainer_of(sweep: Sweep) -> str | None:
    return sweep.request.trainer.name if sweep.request.trainer else None
