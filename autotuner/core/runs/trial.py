"""One layout tried for real, as it is stored, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from autotuner.core.layouts.layout import Layout
from autotuner.core.runs.engine_job import EngineJob
from autotuner.core.runs.estimate import TrialEstimate
from autotuner.core.runs.loss_gate import GateOutcome, GateResult
from autotuner.core.runs.measurement import FinishedRun, Measurement, StepReport
from autotuner.core.runs.prediction import Prediction
from autotuner.core.runs.scaled import ScaledTrial
from autotuner.core.runs.trial_failure import TrialFailure
from autotuner.errors import Conflict

__all__ = ["Outcome", "Stopped", "Trial", "TrialState", "Waiting"]


class TrialState(StrEnum):
    """Where a trial stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # started, but it has no devices yet: it waits for them, or in the queue of an engine
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """No further change will come, unless it was cut short and its sweep goes on."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING, TrialState.WAITING)

    def to(self, new: TrialState) -> TrialState:
        """``new``, if a trial may go there from here.

        An interrupted run goes from ``running`` or ``waiting`` back to ``queued``: it is tried again. So does a trial
        that was cut short by the end of its sweep, once that goes on.

        Raises:
            Conflict: The step is not legal.
        """
        if new in _NEXT[self]:
            return new
        raise Conflict(f"a {self.value} trial cannot become {new.value}")


_FROM_STARTED = (
    TrialState.RUNNING,
    TrialState.WAITING,
    TrialState.COMPLETE,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.CANCELLED,
    TrialState.QUEUED,
)

_NEXT: dict[TrialState, tuple[TrialState, ...]] = {
    TrialState.QUEUED: (TrialState.RUNNING, TrialState.CANCELLED),
    TrialState.RUNNING: tuple(state for state in _FROM_STARTED if state is not TrialState.RUNNING),
    TrialState.WAITING: _FROM_STARTED,
    TrialState.COMPLETE: (),
    TrialState.PRUNED: (),
    TrialState.FAILED: (),
    TrialState.CANCELLED: (TrialState.QUEUED,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A trial that was ended from outside, on purpose.

    Attributes:
        reason: It lost to the best trial; a user asked; time or accelerator-hours of the sweep ran out; the sweep is
            paused; another worker took the sweep over; the worker shuts down; or its nodes were lost, which says
            nothing of the trial.
        detail: The reason with its numbers, as a sentence.
    """

    reason: Literal["pruned", "cancelled", "budget", "paused", "lease_lost", "shutdown", "infrastructure"]
    detail: str = ""


Outcome = Measurement | TrialFailure | Stopped
"""How a trial ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A started trial that has no devices yet.

    Attributes:
        reason: What it waits for, as a sentence without a full stop.
        since: Epoch seconds.
    """

    reason: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial as it is stored.

    Attributes:
        number: Counts from 0 inside its sweep, in the order the sampler asked.
        attempts: How often it was started; above 1 after an interruption. Whoever finds a job of it that goes on
            starts nothing.
        steps: Reports of the running or last attempt.
        stopped: Why it was pruned or cancelled; None in records older than this field.
        gate: What the loss gate found, of a layout that changes the mathematics; None where none ran.
        jobs: What engines were given for it, in order; empty where it runs on the service's own machine.
        scaled: What runs in the place of the layout, where trials have fewer ranks than their job: steps, measurement
            and failure are of that. None: the layout itself runs.
        estimate: What the layout would reach at full size, of a trial that stands for it and was measured.
        repeats: Number of the trial whose layout it runs again, to be compared; it has no rank of its own. None: it is
            the first of its layout.
        expected_gain: By which fraction a trial was expected to raise the best value when this one was chosen; None
            where nothing was measured before, the layout was not chosen so, and in records older than this field.
        started_at: When it began to work: the time that it waited for devices of this machine is left out.
        waiting: Why it has no devices yet, and since when; None unless its state is ``waiting``.
        runs: The runs of it that have finished, while the trial has not.
    """

    id: str
    sweep_id: str
    number: int
    state: TrialState
    layout: Layout
    prediction: Prediction
    attempts: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    steps: tuple[StepReport, ...] = ()
    measurement: Measurement | None = None
    failure: TrialFailure | None = None
    stopped: Stopped | None = None
    gate: GateResult | None = None
    jobs: tuple[EngineJob, ...] = ()
    scaled: ScaledTrial | None = None
    estimate: TrialEstimate | None = None
    repeats: int | None = None
    expected_gain: float | None = None
    waiting: Waiting | None = None
    runs: tuple[FinishedRun, ...] = ()

    @property
    def ran(self) -> Layout:
        """The layout that runs as the trial: its own, or that of the small trial that stands for it."""
        return self.layout if self.scaled is None else self.scaled.layout

    @property
    def reached(self) -> Measurement | TrialEstimate | None:
        """What it is ranked by: what it measured, or what is estimated of the whole job where less of it ran."""
        return self.measurement if self.scaled is None else self.estimate

    @property
    def is_valid(self) -> bool:
        """Whether its layout may be ranked by it: measured in a format that its hardware has, not known to train worse.

        One that exchanges less than its gradients, or clips them early, has to be known to train as well. One that ran
        on fewer ranks than its job has needs an estimate, too.
        """
        outcome = None if self.gate is None else self.gate.outcome
        may_train = outcome is GateOutcome.PASSED if self.layout.needs_passed_gate else outcome != GateOutcome.FAILED
        return self._is_known and may_train

    @property
    def awaits_gate(self) -> bool:
        """Whether it would be ranked if a loss gate passed it, and none looked yet."""
        return self._is_known and self.layout.needs_passed_gate and self.gate is None and self.repeats is None

    @property
    def _is_known(self) -> bool:
        """Whether it was measured in a format that its hardware has."""
        return self.measurement is not None and self.reached is not None and not self.layout.is_emulated

    @property
    def is_ranked(self) -> bool:
        """Whether it has a rank: it is valid, and the first of its layout."""
        return self.is_valid and self.repeats is None

    @property
    def job_goes_on(self) -> bool:
        """Whether an engine's job of it waits or runs: whoever runs the trial next finds that one, and starts none."""
        return any(not job.phase.is_over for job in self.jobs)

    def accelerator_hours(self, now: float) -> float:
        """Ranks x hours of the running or last attempt and of the loss gate; attempts cut short are not counted.

        Waiting does not count. Of jobs of an engine all count, from the moment each had its accelerators.
        """
        gate_hours = self.gate.accelerator_hours if self.gate else 0.0
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs) * self.ran.world_size / 3600 + gate_hours
        return self.worked_s(now) * self.ran.world_size / 3600 + gate_hours

    def worked_s(self, now: float) -> float:
        """Return the seconds that the running or last attempt had devices of the service's own machine."""
        if self.started_at is None:
            return 0.0
        if self.waiting is not None:
            return max(0.0, self.waiting.since - self.started_at)
        ended_at = now if self.finished_at is None else self.finished_at
        return ended_at - self.started_at
