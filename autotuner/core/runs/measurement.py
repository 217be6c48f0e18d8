"""What a trial measured: its steps, where their time went, and the figures of them all."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from autotuner.core.runs.footprint import Footprint
from autotuner.core.runs.link_event import LinkEvent
from autotuner.core.runs.robust import RobustMeasurement
from autotuner.core.runs.timeline import StepTimeline

__all__ = ["Breakdown", "Measurement", "PhaseTimes", "StepReport"]


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
class FinishedRun:
    """One of the runs that a trial consists of, kept so that a trial that is taken over does not repeat it.

    Attributes:
        number: ``TrialSpec.run`` of the run.
        seconds: How long it took, without waiting; all runs of a trial share its time limit.
    """

    number: int
    seconds: float
    measurement: Measurement
