"""One layout tried for real: what is asked, what is reported while it runs, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from autotuner.domain import check
from autotuner.domain.layout import Layout
from autotuner.domain.model import TransformerSpec
from autotuner.domain.prediction import Prediction
from autotuner.domain.workload import Workload
from autotuner.errors import Conflict

__all__ = [
    "FailureKind",
    "Measurement",
    "Outcome",
    "PhaseTimes",
    "StepReport",
    "Stopped",
    "Trial",
    "TrialFailure",
    "TrialSettings",
    "TrialSpec",
    "TrialState",
]


class TrialState(StrEnum):
    """Where a trial stands."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """No further change will come."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING)

    def to(self, new: TrialState) -> TrialState:
        """``new``, if a trial may go there from here.

        An interrupted run goes from ``running`` back to ``queued``: it is tried again.

        Raises:
            Conflict: The step is not legal.
        """
        if new in _NEXT[self]:
            return new
        raise Conflict(f"a {self.value} trial cannot become {new.value}")


_NEXT: dict[TrialState, tuple[TrialState, ...]] = {
    TrialState.QUEUED: (TrialState.RUNNING, TrialState.CANCELLED),
    TrialState.RUNNING: (
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.FAILED,
        TrialState.CANCELLED,
        TrialState.QUEUED,
    ),
    TrialState.COMPLETE: (),
    TrialState.PRUNED: (),
    TrialState.FAILED: (),
    TrialState.CANCELLED: (),
}


class FailureKind(StrEnum):
    """Why a trial died."""

    OOM = "oom"
    TIMEOUT = "timeout"
    COMMUNICATION = "communication"
    NUMERICS = "numerics"
    CRASH = "crash"
    INTERRUPTED = "interrupted"  # the service died around it, more often than it may be tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """How long and how strictly each trial of a sweep runs.

    Attributes:
        warmup_steps: Steps run before timing starts.
        measured_steps: Steps whose times are kept.
        timeout_s: Wall clock from launch to the last report.
        memory_budget_bytes: Limit per rank; on a CPU the way to have a real out-of-memory. None: all there is.
    """

    warmup_steps: int = 2
    measured_steps: int = 5
    timeout_s: float = 300.0
    memory_budget_bytes: int | None = None
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check.non_negative(self, "warmup_steps")
        check.positive(self, "measured_steps", "timeout_s", "learning_rate")
        if self.memory_budget_bytes is not None:
            check.positive(self, "memory_budget_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """All that a trial job needs to know; travels as JSON.

    Attributes:
        peak_flop_per_s: Dense peak of one rank in the layout's precision; None: measure the GEMM rate of the
            cores the ranks have.
    """

    trial_id: str
    model: TransformerSpec
    workload: Workload
    layout: Layout
    device: Literal["cpu", "cuda"]
    settings: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    peak_flop_per_s: float | None = None

    def __post_init__(self) -> None:
        check.one_of("device", self.device, ("cpu", "cuda"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One training step as rank 0 saw it; ``step`` counts from 0 and includes the warm-up."""

    step: int
    is_warmup: bool
    step_time_s: float
    loss: float
    tokens_per_s: float
    mfu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Mean seconds per measured step by phase, on the slowest rank of each.

    Attributes:
        forward_backward_s: Forward and backward, with the communication inside them and the pipeline's idle time.
        gradient_sync_s: Waiting for gradient collectives after the last backward.
        optimizer_s: The optimizer's step and zeroing the gradients.
    """

    forward_backward_s: float
    gradient_sync_s: float
    optimizer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial measured, after its warm-up.

    Attributes:
        step_time_s: Median of the measured steps.
        step_time_spread_s: Distance between the quartiles of the measured steps.
        model_flop_per_s: Whole job.
        mfu: Model FLOP / (step time x sum of the ranks' peaks), 0..1; full attention, nothing recomputed.
        hfu: The same with recomputed FLOP counted.
        peak_flop_per_s: Sum over ranks, the denominator used.
        peak_source: ``data sheet`` or ``measured GEMM rate of N cores``.
        peak_bytes: Highest allocated bytes of each rank, by rank; on CPU of tensors, on CUDA of the allocator.
        losses: One per step, warm-up included.
        foreign_cpu_share: Share of the machine's CPU time that others used meanwhile, 0..1.
        environment: Versions and device names.
    """

    step_time_s: float
    step_time_spread_s: float
    num_steps: int
    tokens_per_s: float
    model_flop_per_s: float
    mfu: float
    hfu: float
    peak_flop_per_s: float
    peak_source: str
    peak_bytes: tuple[int, ...]
    phases: PhaseTimes
    losses: tuple[float, ...]
    foreign_cpu_share: float
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailure:
    """A trial that died.

    Attributes:
        message: One line for a table.
        rank: The rank that died first, where it is known.
        log_tail: The last lines that rank printed.
    """

    kind: FailureKind
    message: str
    rank: int | None = None
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A trial that was ended from outside, on purpose."""

    reason: Literal["pruned", "cancelled", "lease_lost", "shutdown"]


Outcome = Measurement | TrialFailure | Stopped
"""How a trial ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial as it is stored.

    Attributes:
        number: Counts from 0 inside its sweep, in the order the sampler asked.
        attempts: How often it was started; above 1 after an interruption.
        steps: Reports of the running or last attempt.
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

    def accelerator_hours(self, now: float) -> float:
        """Ranks x hours of the running or last attempt; earlier attempts that were cut short are not counted."""
        if self.started_at is None:
            return 0.0
        ended_at = now if self.finished_at is None else self.finished_at
        return (ended_at - self.started_at) * self.layout.world_size / 3600
