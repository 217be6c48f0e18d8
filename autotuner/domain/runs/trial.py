"""One layout tried for real: what is asked, what is reported while it runs, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Literal

from autotuner.domain import check
from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.jobs.fault_trace import FaultTrace
from autotuner.domain.jobs.model import TransformerSpec
from autotuner.domain.jobs.stack import Stack
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.layouts.choice import GradientClip
from autotuner.domain.layouts.layout import Layout
from autotuner.domain.runs.engine_job import EngineJob
from autotuner.domain.runs.estimate import TrialEstimate
from autotuner.domain.runs.footprint import Footprint
from autotuner.domain.runs.link_event import LinkEvent
from autotuner.domain.runs.loss_gate import GateOutcome, GateResult
from autotuner.domain.runs.optimizer import OptimizerSettings
from autotuner.domain.runs.prediction import Prediction
from autotuner.domain.runs.robust import RobustMeasurement
from autotuner.domain.runs.scaled import ScaledTrial
from autotuner.domain.runs.timeline import StepTimeline
from autotuner.domain.runs.trainer import Trainer
from autotuner.errors import Conflict, InvalidInput

__all__ = [
    "Breakdown",
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

_CUSTOMARY_NORM = 1.0
"""What large language models are clipped to (arXiv 2005.14165, appendix B; arXiv 2302.13971, section 2.3)."""


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
        """No further change will come, unless it was cut short and its sweep goes on."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING)

    def to(self, new: TrialState) -> TrialState:
        """``new``, if a trial may go there from here.

        An interrupted run goes from ``running`` back to ``queued``: it is tried again. So does a trial that was cut
        short by the end of its sweep, once that goes on.

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
    TrialState.CANCELLED: (TrialState.QUEUED,),
}


class FailureKind(StrEnum):
    """Why a trial died."""

    OOM = "oom"
    TIMEOUT = "timeout"
    COMMUNICATION = "communication"
    NUMERICS = "numerics"
    CRASH = "crash"
    INTERRUPTED = "interrupted"  # the service died around it, more often than it may be tried again
    INFRASTRUCTURE = "infrastructure"  # its nodes were lost or never came, more often than it may be tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """How long and how strictly each trial of a sweep runs.

    Attributes:
        warmup_steps: Fewest steps before timing starts; more are run until the step time is stationary.
        max_warmup_steps: Most steps before timing starts, unless the fewest are more.
        measured_steps: Fewest steps whose times are kept; more are run until their median is known well enough.
        max_measured_steps: Most steps whose times are kept, unless the fewest are more.
        target_interval: Well enough: half the 95 % confidence interval of the median, as a share of it.
        measuring_budget_s: Seconds of steps after which no more are run than the fewest, to warm up and to measure.
        profiled_steps: Steps run after the timed ones, under the profiler, for the breakdown by phase; 0: none.
        timeout_s: Wall clock from launch to the last report, but for steps under a fault trace.
        faulty_step_timeout_s: What each step of the sweep's fault trace adds to that: a long trace runs to its end.
        memory_budget_bytes: Limit per rank; on a CPU the way to have a real out-of-memory. None: all there is.
        max_gradient_norm: Gradients of the whole model are scaled down to this norm before each update; None: never.
        num_languages: Sequences are of so many languages, and each data-parallel rank reads one: what no rank tells the
            others, these do not learn. 1: all read the same.
        num_validation_batches: Batches behind the last step whose loss is taken without an update, each rank reading
            all languages by turns; 0: none.
        max_foreign_share: A trial is disturbed where others used more of the machine's CPU time than this share.
        max_repeats: How often a disturbed trial is run again before the least disturbed run is taken.
        num_runs: Runs of the same trial on fresh ranks; from two on, their medians tell the noise floor (A/A).
        proxy_layers_per_stage: Two numbers of layers per stage to run instead of the whole model, whose figures are
            then extrapolated; empty: the whole model runs.
    """

    warmup_steps: int = 2
    max_warmup_steps: int = 20
    measured_steps: int = 5
    max_measured_steps: int = 40
    target_interval: float = 0.01
    measuring_budget_s: float = 5.0
    profiled_steps: int = 1
    timeout_s: float = 300.0
    faulty_step_timeout_s: float = 10.0
    memory_budget_bytes: int | None = None
    learning_rate: float = 1e-3
    max_gradient_norm: float | None = None
    num_languages: int = 1
    num_validation_batches: int = 0
    max_foreign_share: float = 0.1
    max_repeats: int = 1
    num_runs: int = 1
    proxy_layers_per_stage: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check.non_negative(self, "warmup_steps", "max_warmup_steps", "max_measured_steps", "profiled_steps")
        check.non_negative(self, "max_repeats", "target_interval", "num_validation_batches")
        check.positive(self, "measured_steps", "timeout_s", "learning_rate", "measuring_budget_s", "num_runs")
        check.positive(self, "faulty_step_timeout_s", "num_languages")
        check.fraction(self, "max_foreign_share")
        for name in ("memory_budget_bytes", "max_gradient_norm"):
            if getattr(self, name) is not None:
                check.positive(self, name)
        proxy = self.proxy_layers_per_stage
        if proxy and not (len(proxy) == 2 and 0 < proxy[0] < proxy[1]):
            rule = "must be two rising numbers of layers, 1 or more, or be left out"
            raise InvalidInput("proxy_layers_per_stage", list(proxy), rule)

    @classmethod
    def default_for(cls, layout: Layout) -> TrialSettings:
        """What a sweep's trials have where nothing is said, and the customary norm where the layout clips to one."""
        return cls(max_gradient_norm=None if layout.gradient_clip == GradientClip.POST else _CUSTOMARY_NORM)

    def require_norm(self, clips: Iterable[GradientClip]) -> None:
        """Return if gradients can be clipped in all these ways.

        Raises:
            InvalidInput: They are clipped before their reduction, and no norm is set.
        """
        early = next((one for one in clips if one != GradientClip.POST), None)
        if early is not None and self.max_gradient_norm is None:
            rule = f"must be set where clip {early} is tried: without a norm nothing is clipped, before or behind"
            raise InvalidInput("max_gradient_norm", None, rule, _CUSTOMARY_NORM)

    def just_steps(self, num_steps: int) -> TrialSettings:
        """With just so many steps, of a training whose losses count: nothing is warmed up, repeated or profiled."""
        return replace(
            self,
            warmup_steps=0,
            max_warmup_steps=0,
            measured_steps=num_steps,
            max_measured_steps=num_steps,
            profiled_steps=0,
            max_repeats=0,
            num_runs=1,
            proxy_layers_per_stage=(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """All that a trial job needs to know; travels as JSON.

    Attributes:
        reference_flop_per_s: Peak of one rank that MFU is a share of, one for all trials of a sweep; None: measure the
            GEMM rate of the cores the ranks have.
        precision_flop_per_s: Dense peak of one rank in the layout's precision, where it is known.
        memory_bytes: What one rank's device holds, where that is known: the limit of what was extrapolated.
        trainer: What runs; None: our own decoder.
        cluster: Where it runs, which tells its engine, and a trainer's configuration what it may have to say; None:
            on this machine.
        run: Which of the trial's runs it is, where one is run again to be believed.
        repeat: Number of a trial that repeats another, so that what is simulated differs from run to run; else 0.
        jobs: Those that engines were given for the trial before, to be found again.
        stack: Software that it was predicted for, where a trial is simulated; None: our own.
        fault_trace: What befalls its links in further steps behind the measured ones; None: there are none.
        optimizer: What updates the parameters; None: AdamW as torch has it, at the learning rate of the settings.
    """

    trial_id: str
    model: TransformerSpec
    workload: Workload
    layout: Layout
    device: Literal["cpu", "cuda"]
    settings: TrialSettings = field(default_factory=TrialSettings)
    seed: int = 0
    reference_flop_per_s: float | None = None
    precision_flop_per_s: float | None = None
    memory_bytes: int | None = None
    trainer: Trainer | None = None
    cluster: Cluster | None = None
    run: int = 0
    repeat: int = 0
    jobs: tuple[EngineJob, ...] = ()
    stack: Stack | None = None
    fault_trace: FaultTrace | None = None
    optimizer: OptimizerSettings | None = None

    def __post_init__(self) -> None:
        check.one_of("device", self.device, ("cpu", "cuda"))
        check.non_negative(self, "run", "repeat")
        if self.trainer is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a trainer")
        if self.settings.num_languages > self.model.vocab_size:
            rule = f"must leave each language a word of the model's {self.model.vocab_size}"
            raise InvalidInput("num_languages", self.settings.num_languages, rule, self.model.vocab_size)
        if self.fault_trace is not None and self.cluster is None:
            raise InvalidInput("cluster", None, "must be given with a fault_trace: it says what a link joins")
        try:
            self.settings.require_norm((self.layout.gradient_clip,))
        except InvalidInput as error:
            raise error.under("settings") from error

    @property
    def trained_by(self) -> OptimizerSettings:
        """The optimizer that updates the parameters."""
        return self.optimizer or OptimizerSettings(learning_rate=self.settings.learning_rate)

    @property
    def has_slow_links(self) -> bool:
        """Whether links are to be slower in some step than they really are."""
        assumed = self.cluster.link_health if self.cluster else ()
        return self.fault_trace is not None or any(not (one.source or one.is_healthy) for one in assumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One training step, as long as the slowest rank took; ``step`` counts from 0 and includes the warm-up.

    Attributes:
        is_warmup: It does not count: the step time was not yet known to be stationary when it ran.
        is_under_trace: It ran under the sweep's fault trace, behind the measured steps, and counts for robust figures
            alone.
    """

    step: int
    is_warmup: bool
    step_time_s: float
    loss: float
    tokens_per_s: float
    mfu: float
    is_under_trace: bool = False

    @property
    def is_measured(self) -> bool:
        """Whether the trial's step time is made of it."""
        return not (self.is_warmup or self.is_under_trace)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Mean seconds per measured step by phase, on the slowest rank of each.

    Attributes:
        forward_backward_s: Forward and backward, with the communication inside them and the pipeline's idle time.
        gradient_sync_s: From the gradient of the first layer's input to complete gradients: waiting for collectives,
            and for the weights' gradients where a schedule computes them apart, and what replicas exchange in their
            place, before or behind the update.
        optimizer_s: The optimizer's step and zeroing the gradients.
    """

    forward_backward_s: float
    gradient_sync_s: float
    optimizer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where one rank's step went, from the profiler on steps that are not timed: the parts sum to ``step_s``.

    Communication is what stays exposed: time in which the rank computes nothing. A rank that waits for another in a
    collective spends that time in the collective.

    Attributes:
        rank: The rank of whose step these are the parts: the one that computes longest.
        send_receive_s: Sends and receives between pipeline stages, without the wait for the neighbour's result.
        pipeline_idle_s: Waiting for a neighbour of the pipeline.
        other_s: What is none of these: Python between the operations, reading the loss.
    """

    rank: int
    forward_s: float
    backward_s: float
    all_reduce_s: float
    all_gather_s: float
    reduce_scatter_s: float
    all_to_all_s: float
    send_receive_s: float
    pipeline_idle_s: float
    optimizer_s: float
    other_s: float

    @property
    def step_s(self) -> float:
        """The whole step."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name != "rank"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a trial measured, after its warm-up.

    Attributes:
        step_time_s: Median of the measured steps; where replicas average their parameters every few steps, each with
            its part of that.
        step_time_spread_s: Distance between the quartiles of the measured steps.
        step_time_interval_s: Half the 95 % confidence interval of the median; None from fewer than six steps.
        num_warmup_steps: Steps before timing started; None where it was not recorded.
        model_flop_per_s: Whole job.
        mfu: Model FLOP / (step time x sum of the ranks' reference peaks); full attention, nothing recomputed.
        hfu: Hardware FLOP, recomputation counted, over the same.
        peak_flop_per_s: Sum of the ranks' reference peaks, the denominator used.
        precision_flop_per_s: Sum over ranks of the dense peak of the layout's precision; None where it is not known.
        peak_source: ``data sheet`` or ``measured GEMM rate of N cores``.
        peak_bytes: Highest allocated bytes of each rank, by rank; on CPU of tensors, on CUDA of the allocator. Of a
            registered trainer: as it reports them, of some ranks or of none, and of the whole process on CPU.
        reserved_bytes: Highest bytes the allocator held, by rank; on CPU what the process grew by after its first step.
        losses: One per step that was timed, warm-up included; empty where a trainer reports none.
        foreign_cpu_share: Share of the machine's CPU time that others used meanwhile, 0..1.
        environment: Versions, devices, clocks, variables of the libraries, as rank 0 saw them; its host's name hashed.
        breakdown: None where no step was profiled.
        breakdown_failure: Of what the profiled steps died; None where they did not, or none was asked for.
        compile_s: What ``torch.compile`` took, part of no step time.
        power_w: Mean draw of one accelerator during the measured steps; None where nothing measures it.
        noise_floor: Relative difference of the medians of equal runs (A/A); None where the trial ran once.
        num_disturbed: Runs that were thrown away because others used the machine.
        extrapolated_from: Numbers of layers that ran instead of the model's; empty: the whole model ran.
        phases: None where nobody divided the steps, as of a registered trainer.
        is_simulated: Nothing ran: these are figures of the cost model with seeded noise, and evidence of nothing.
        overlapped_share: Of the bytes of gradients that were reduced, those whose reduction started before the last
            gradient of their step was computed, by hooks; None where no hook hears of it, as under FSDP or in a
            registered trainer, and where nothing is reduced.
        timeline: A profiled step, rank by rank; None where none was recorded, in lists, and once it was thinned away.
        robust: What it reached under the sweep's fault trace; None without one. All other figures are healthy steps'.
        link_events: What a running pipeline found out about its links and ranks, and did about it, in order; steps
            count as ``StepReport`` does.
        validation_loss: Of the batches behind the last step, on every rank's own parameters; None where there are none.
        footprint: What it takes beside time; None in records older than this field.
        sync_payload_bytes: What the rank that sends most contributes to the exchange between replicas in an average
            step, before the collective's own factor; None where replicas sum their gradients, or nobody counts.
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
    losses: tuple[float, ...]
    foreign_cpu_share: float
    environment: dict[str, str]
    step_time_interval_s: float | None = None
    num_warmup_steps: int | None = None
    reserved_bytes: tuple[int, ...] = ()
    breakdown: Breakdown | None = None
    compile_s: float = 0.0
    power_w: float | None = None
    noise_floor: float | None = None
    num_disturbed: int = 0
    extrapolated_from: tuple[int, ...] = ()
    breakdown_failure: str | None = None
    precision_flop_per_s: float | None = None
    phases: PhaseTimes | None = None
    is_simulated: bool = False
    timeline: StepTimeline | None = None
    robust: RobustMeasurement | None = None
    link_events: tuple[LinkEvent, ...] = ()
    validation_loss: float | None = None
    sync_payload_bytes: float | None = None
    overlapped_share: float | None = None
    footprint: Footprint | None = None

    @property
    def step_time_error_s(self) -> float:
        """Half the 95 % interval of the step time; where too few steps tell it, from the distance of their quartiles.

        Of normal times the quartiles lie 1.349 standard deviations apart, and a median of n scatters by 1.253 / sqrt(n)
        of one (any table of order statistics).
        """
        if self.step_time_interval_s is not None:
            return self.step_time_interval_s
        return 1.96 * 1.253 * self.step_time_spread_s / 1.349 / math.sqrt(max(1, self.num_steps))

    @property
    def precision_utilization(self) -> float | None:
        """Model FLOP over what the dense peak of the precision in use could do; never ranked by."""
        return self.model_flop_per_s / self.precision_flop_per_s if self.precision_flop_per_s else None


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

        Of jobs of an engine all count, from the moment each had its accelerators.
        """
        gate_hours = self.gate.accelerator_hours if self.gate else 0.0
        if self.jobs:
            return sum(job.running_s(now) for job in self.jobs) * self.ran.world_size / 3600 + gate_hours
        if self.started_at is None:
            return gate_hours
        ended_at = now if self.finished_at is None else self.finished_at
        return (ended_at - self.started_at) * self.ran.world_size / 3600 + gate_hours
