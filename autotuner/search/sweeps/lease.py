"""A worker's hold on one sweep: every write goes through it, under the worker's name and the clock's time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import structlog

from autotuner.core.convergence_gate import GateResult
from autotuner.core.errors import Conflict, LeaseLost, StoreUnavailable
from autotuner.core.layout import Layout
from autotuner.core.measurement import FinishedRun, LinkEvent, StepReport
from autotuner.core.prediction import Prediction, TrialEstimate
from autotuner.core.run import RENEWALS_PER_LEASE, StopReason, SweepState
from autotuner.core.sweep import Demand, Prospects, Sweep
from autotuner.core.trial import EngineJob, Outcome, ScaledTrial, Trial, TrialState
from autotuner.ports import Clock, Store
from autotuner.search.sweeps.history import all_trials
from autotuner.tracing import carried

T = TypeVar("T")

_RETRY_S = 1.0

_STARTED = (TrialState.RUNNING, TrialState.WAITING)

_log = structlog.get_logger(__name__)


class Lease:
    """What a worker may do with a sweep while it holds it. Every write raises ``LeaseLost`` once it does not.

    Args:
        store: Where the sweep is.
        clock: Tells when to renew.
        owner: Name of the worker.
        sweep: As it was claimed, just now.
        duration_s: For how long the worker may be silent before another takes the sweep over.
        shutdown: Set when the worker is told to stop; ends waiting for a store that is away.

    Attributes:
        cancel_requested: Whether a user asked for the end, as of the last renewal.
        pause_requested: Whether a user asked for a pause.
        demand: What is asked of the sweep.
        is_lost: Whether another worker was seen to hold the sweep.
    """

    def __init__(
        self, store: Store, clock: Clock, *, owner: str, sweep: Sweep, duration_s: float, shutdown: threading.Event
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._sweep_id = sweep.id
        self._duration_s = duration_s
        self._shutdown = shutdown
        self._renewing = threading.Lock()
        self._renewed_at = clock.monotonic()
        self.is_lost = False
        self._hear(sweep)

    @property
    def _renewal_s(self) -> float:
        return self._duration_s / RENEWALS_PER_LEASE

    # ------------------------------------------------------------------ holding on
    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew from a thread of its own for as long as the block runs, whatever the block is busy with."""
        done = threading.Event()

        def keep() -> None:
            while not done.wait(self._renewal_s):
                self.renew_if_due()

        thread = threading.Thread(target=carried(keep), name="autotuner-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def renew_if_due(self) -> None:
        """Renew where a part of the lease has passed; what is found out stands in the attributes. From any thread."""
        with self._renewing:
            now = self._clock.monotonic()
            if self.is_lost or now - self._renewed_at < self._renewal_s:
                return
            self._renewed_at = now
            try:
                self._renew()
            except LeaseLost:
                self.is_lost = True
            except StoreUnavailable as error:  # work goes on; the lease decides later whether its result still counts
                _log.warning("worker.store_unavailable", error=str(error))

    def renew(self) -> None:
        """Renew now."""
        with self._renewing:
            self._renewed_at = self._clock.monotonic()
            self._renew()

    def _renew(self) -> None:
        now, lease_s = self._clock.now(), self._duration_s
        self._hear(self._store.renew_lease(self._sweep_id, owner=self._owner, now=now, lease_s=lease_s))

    def _hear(self, sweep: Sweep) -> None:
        self.cancel_requested = sweep.cancel_requested
        self.pause_requested = sweep.pause_requested
        self.demand = sweep.demand

    def release(self) -> None:
        """Give the sweep back unfinished, to be paused or taken up by another."""
        self._store.release_sweep(self._sweep_id, owner=self._owner, now=self._clock.now())

    # ------------------------------------------------------------------ writing
    def add_trial(
        self,
        number: int,
        layout: Layout,
        prediction: Prediction,
        *,
        scaled: ScaledTrial | None = None,
        repeats: int | None = None,
        prospects: Prospects | None = None,
    ) -> Trial:
        """Store a queued trial, as often as it takes: what runs beside it goes on meanwhile."""

        def write() -> Trial:
            try:
                return self._store.add_trial(
                    self._sweep_id,
                    owner=self._owner,
                    number=number,
                    layout=layout,
                    prediction=prediction,
                    scaled=scaled,
                    repeats=repeats,
                    prospects=prospects,
                )
            except Conflict:
                stored = next((t for t in all_trials(self._store, self._sweep_id) if t.number == number), None)
                if stored is None or stored.state is not TrialState.QUEUED or stored.layout != layout:
                    raise
                return stored  # as in ``finish``

        return self._until_stored(write)

    def start(self, trial: Trial) -> Trial:
        """Store that the trial runs, as often as it takes: its attempt is counted once."""

        def write() -> Trial:
            try:
                return self._store.start_trial(trial.id, owner=self._owner, now=self._clock.now())
            except Conflict:
                stored = self._store.get_trial(trial.id)
                if stored.state not in _STARTED:
                    raise
                return stored  # as in ``finish``

        return self._until_stored(write)

    def add_step(self, trial: Trial, step: StepReport) -> None:
        """Store a progress report; a store that is away loses it, the measurement that follows holds what counts."""
        try:
            self._store.add_step(trial.id, step, owner=self._owner, now=self._clock.now())
        except StoreUnavailable as error:
            _log.warning("lease.step_not_stored", trial_id=trial.id, step=step.step, error=str(error))

    def add_note(self, trial: Trial, note: str) -> None:
        """Store what a person who waits should know; a store that is away loses it."""
        try:
            self._store.add_note(trial.id, note, owner=self._owner, now=self._clock.now())
        except StoreUnavailable as error:
            _log.warning("lease.note_not_stored", trial_id=trial.id, note=note, error=str(error))

    def add_link_event(self, trial: Trial, event: LinkEvent) -> None:
        """Store what a pipeline found out; a store that is away loses it until the trial is measured."""
        try:
            self._store.add_link_event(trial.id, event, owner=self._owner, now=self._clock.now())
        except StoreUnavailable as error:
            _log.warning("lease.link_event_not_stored", trial_id=trial.id, step=event.step, error=str(error))

    def set_job(self, trial: Trial, job: EngineJob) -> Trial:
        """Store how a job of the trial stands, as often as it takes: by it the trial is found again."""
        return self._until_stored(lambda: self._store.set_job(trial.id, job, owner=self._owner, now=self._clock.now()))

    def set_waiting(self, trial: Trial, reason: str | None) -> Trial:
        """Store that the trial waits and why, or that it goes on, as often as it takes: waiting is not paid for."""
        return self._until_stored(
            lambda: self._store.set_waiting(trial.id, reason, owner=self._owner, now=self._clock.now())
        )

    def add_run(self, trial: Trial, run: FinishedRun) -> None:
        """Store a run of the trial that has finished; a store that is away loses it, and it may have to be repeated."""
        try:
            self._store.add_run(trial.id, run, owner=self._owner, now=self._clock.now())
        except StoreUnavailable as error:
            _log.warning("lease.run_not_stored", trial_id=trial.id, run=run.number, error=str(error))

    def finish(self, trial: Trial, outcome: Outcome) -> Trial:
        """Store how the trial ended, as often as it takes."""

        def write() -> Trial:
            try:
                return self._store.finish_trial(trial.id, outcome, owner=self._owner, now=self._clock.now())
            except Conflict:
                stored = self._store.get_trial(trial.id)
                if stored.state in _STARTED:
                    raise
                return stored  # an earlier attempt was stored, only its answer was lost

        return self._until_stored(write)

    def add_gate(self, trial: Trial, result: GateResult) -> Trial:
        """Store what the loss gate found, as often as it takes."""

        def write() -> Trial:
            try:
                return self._store.add_gate(trial.id, result, owner=self._owner, now=self._clock.now())
            except Conflict:
                stored = self._store.get_trial(trial.id)
                if stored.gate is None:
                    raise
                return stored

        return self._until_stored(write)

    def set_estimates(self, estimates: Mapping[str, TrialEstimate]) -> Sequence[Trial]:
        """Store what is estimated of trials at full size, as often as it takes."""
        return self._until_stored(
            lambda: self._store.set_estimates(self._sweep_id, estimates, owner=self._owner, now=self._clock.now())
        )

    def finish_sweep(
        self,
        state: SweepState,
        reason: StopReason,
        detail: str,
        *,
        seen: Demand | None = None,
        prospects: Prospects | None = None,
    ) -> Sweep | None:
        """Store how the sweep ended, as often as it takes; None where more is asked of it than was seen: it goes on."""
        sweep = self._until_stored(
            lambda: self._store.finish_sweep(
                self._sweep_id,
                owner=self._owner,
                now=self._clock.now(),
                state=state,
                reason=reason,
                detail=detail,
                seen=seen,
                prospects=prospects,
            )
        )
        self._hear(sweep)
        return sweep if sweep.state.finished else None

    def _until_stored(self, write: Callable[[], T]) -> T:
        while True:
            try:
                return write()
            except StoreUnavailable as error:
                _log.warning("lease.store_unavailable", error=str(error))
                if self._shutdown.is_set():
                    raise
                self._clock.sleep(_RETRY_S)
