"""StudyWorker: takes optimizer studies by lease, one after the other, and sees each to its end."""

from __future__ import annotations

import contextlib
from threading import Event as Flag

import structlog

from autotuner.core.errors import LeaseLost, StoreUnavailable
from autotuner.core.study import OptimizerStudy, StudyState
from autotuner.lease_watch import LeaseWatch
from autotuner.ports import Clock, Launcher, OptimizerStudyStore
from autotuner.search.studies.hold import StudyHold
from autotuner.search.studies.plan import StudyPlan
from autotuner.search.studies.study_run import StudyRun
from autotuner.tracing import working_on

_log = structlog.get_logger(__name__)


class StudyWorker:
    """Runs studies until told to stop.

    Args:
        owner: Name of this worker, unique among all that share the store.
        lease_s: For how long the worker may be silent before another takes a sweep over; of a study somewhat longer.
        shutdown: Set it to end the running trial, give the study back and return.
    """

    def __init__(
        self,
        store: OptimizerStudyStore,
        launcher: Launcher,
        clock: Clock,
        *,
        owner: str,
        lease_s: float,
        shutdown: Flag | None = None,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s
        self._shutdown = shutdown or Flag()
        self._watch = LeaseWatch(clock, owner=owner, lease_s=StudyHold.lasting(lease_s))

    def run_once(self) -> bool:
        """Take one study and run it to its end; False if there is none to take."""
        lapsed, lease_s = self._watch.lapsed(self._store.held), StudyHold.lasting(self._lease_s)
        study = self._store.claim(owner=self._owner, now=self._clock.now(), lease_s=lease_s, lapsed=lapsed)
        if study is None:
            return False
        with working_on("study.run", study_id=study.id, worker=self._owner, caller=study.created_by):
            self._see_to_its_end(study)
        return True

    def _see_to_its_end(self, study: OptimizerStudy) -> None:
        hold = StudyHold(
            self._store, self._clock, study, owner=self._owner, lease_s=self._lease_s, shutdown=self._shutdown
        )
        try:
            if refusal := self._launcher.refuses(study.request.job.cluster):
                return hold.finish(StudyState.FAILED, refusal)
            plan = StudyPlan(study, self._store.trials(study.id))
            StudyRun(hold, plan, self._launcher, self._shutdown).run()
        except LeaseLost:
            _log.warning("study.lease_lost")
        except StoreUnavailable:
            raise
        except Exception as error:  # a bug must end this study with its reason, not the worker and what waits
            _log.exception("study.error")
            with contextlib.suppress(LeaseLost):
                hold.finish(StudyState.FAILED, f"{type(error).__name__}: {error}")
