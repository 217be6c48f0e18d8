"""A worker's hold on one sweep: every write goes through it, under the worker's name and the clock's time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event as Flag
from typing import TypeVar

import structlog

from autotuner.domain.layout import Layout
from autotuner.domain.prediction import Prediction
from autotuner.domain.sweep import StopReason, Sweep, SweepState
from autotuner.domain.trial import Outcome, StepReport, Trial, TrialState
from autotuner.errors import Conflict, StoreUnavailable
from autotuner.ports import Clock, Store

__all__ = ["Lease"]

T = TypeVar("T")

_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What a worker may do with a sweep while it holds it. Every method raises ``LeaseLost`` once it does not.

    Attributes:
        duration_s: How long the store keeps the sweep for a worker that says nothing.
        shutdown: Set when the worker is told to stop; ends waiting for a store that is away.
    """

    store: Store
    clock: Clock
    owner: str
    sweep_id: str
    duration_s: float
    shutdown: Flag

    def renew(self) -> Sweep:
        """Hold the sweep for another ``duration_s``, and see whether a cancel was requested."""
        return self.store.renew_lease(self.sweep_id, owner=self.owner, now=self.clock.now(), lease_s=self.duration_s)

    def release(self) -> None:
        """Give the sweep back unfinished."""
        self.store.release_sweep(self.sweep_id, owner=self.owner, now=self.clock.now())

    def add_trial(self, number: int, layout: Layout, prediction: Prediction) -> Trial:
        """Store a queued trial."""
        return self.store.add_trial(
            self.sweep_id, owner=self.owner, number=number, layout=layout, prediction=prediction
        )

    def start(self, trial: Trial) -> Trial:
        """Store that the trial runs."""
        return self.store.start_trial(trial.id, owner=self.owner, now=self.clock.now())

    def add_step(self, trial: Trial, step: StepReport) -> None:
        """Store a progress report; a store that is away loses it, the measurement that follows holds what counts."""
        try:
            self.store.add_step(trial.id, step, owner=self.owner, now=self.clock.now())
        except StoreUnavailable as error:
            _log.warning("lease.step_not_stored", trial=trial.id, step=step.step, error=str(error))

    def finish(self, trial: Trial, outcome: Outcome) -> Trial:
        """Store how the trial ended, as often as it takes."""

        def write() -> Trial:
            try:
                return self.store.finish_trial(trial.id, outcome, owner=self.owner, now=self.clock.now())
            except Conflict:
                stored = self.store.get_trial(trial.id)
                if stored.state == TrialState.RUNNING:
                    raise
                return stored  # an earlier attempt was stored, only its answer was lost

        return self._until_stored(write)

    def finish_sweep(self, state: SweepState, reason: StopReason, detail: str) -> Sweep:
        """Store how the sweep ended, as often as it takes."""
        return self._until_stored(
            lambda: self.store.finish_sweep(
                self.sweep_id, owner=self.owner, now=self.clock.now(), state=state, reason=reason, detail=detail
            )
        )

    def _until_stored(self, write: Callable[[], T]) -> T:
        while True:
            try:
                return write()
            except StoreUnavailable as error:
                _log.warning("lease.store_unavailable", error=str(error))
                if self.shutdown.is_set():
                    raise
                self.clock.sleep(_RETRY_S)
