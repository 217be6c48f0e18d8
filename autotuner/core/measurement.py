"""Measurement: what a trial measured of a layout."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Literal

from autotuner.core.errors import InvalidInput
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.link import LinkHealth
from autotuner.core.timeline import StepTimeline
from autotuner.core.value import Count, NonNegative, Positive, Reported, derived, value


@value
class Power:
    """Mean draw of a whole job while it trains, by what draws it."""

    accelerators_w: NonNegative
    """Of all accelerators."""
    hosts_w: NonNegative
    """Of the nodes around them."""
    network_w: NonNegative
    """Of ports and switches, for the bytes that leave nodes."""
    building_w: NonNegative
    """What cooling and transformers add (power usage effectiveness)."""
    is_measured: bool = False
    """The accelerators' part was measured; nothing else ever is."""

    @property
    def total_w(self) -> float:
        """The sum of all parts."""
        return self.accelerators_w + self.hosts_w + self.network_w + self.building_w


@value
class Footprint:
    """What runs beside the clock; figures per hour are of the whole job."""

    power: Power | None
    """Mean draw; None where the accelerator's is not known."""
    price_per_hour: NonNegative
    """US dollars of accelerators and of energy that is paid beside them; 0 where no price is known."""
    co2_kg_per_hour: NonNegative
    """Of the energy; 0 where its mix is not known."""
    complexity: NonNegative
    """Weighted count of what differs from plain, and of special hardware it needs (docs/explanation/objectives.md)."""
    robustness: float | None = None
    """Throughput under the sweep's fault trace over that of healthy steps; None without a trace."""

    def kwh_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the energy of a million tokens of a job that is so fast; None where no power is known."""
        return None if self.power is None else _of_a_million(self.power.total_w / 1000, tokens_per_s)

    def price_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the US dollars of a million tokens; None where no price is known."""
        return _of_a_million(self.price_per_hour, tokens_per_s) if self.price_per_hour else None

    def co2_kg_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the emissions of a million tokens; None where the energy's mix is not known."""
        return _of_a_million(self.co2_kg_per_hour, tokens_per_s) if self.co2_kg_per_hour else None


def _of_a_million(per_hour: float, tokens_per_s: float) -> float:
    return 1e6 * per_hour / (tokens_per_s * 3600.0)


class LinkEventKind(StrEnum):
    """What happened."""

    LINK_SLOW = "link_slow"  # a link between stages delays what is sent
    LINK_RECOVERED = "link_recovered"
    LINK_DEAD = "link_dead"  # nothing passes any more; delegates bridge it
    RANK_SLOW = "rank_slow"  # a stage computes longer than it did: no link is at fault
    RANK_RECOVERED = "rank_recovered"
    REPLANNED = "replanned"  # all ranks follow another plan from the next step on


@value
class LinkEvent:
    """One finding or re-plan, at one step."""

    step: int
    """Of the trial, as its step reports count."""
    kind: LinkEventKind
    stages: tuple[int, ...] = ()
    """Pipeline ranks at both ends of a link, or the one that is slow; empty of a re-plan."""
    delay_s: float = 0.0
    """One-way delay that was found; 0 of a recovery."""
    warm_up: tuple[int, ...] = ()
    """Forwards per pipeline rank before its first backward, after a re-plan."""
    delegated: bool = False
    """Whether sends are delegated, after a re-plan."""
    cost_s: float = 0.0
    """Seconds that it took out of a step."""


@value
class StepReport:
    """One training step, as long as the slowest rank took; ``step`` counts from 0 and includes the warm-up."""

    step: int
    is_warmup: bool
    """It does not count: the step time was not yet known to be stationary when it ran."""
    step_time_s: Reported
    loss: Reported
    tokens_per_s: Reported
    mfu: Reported
    is_under_trace: bool = False
    """It ran under the sweep's fault trace, behind the measured steps, and counts for robust figures alone."""

    @property
    def is_measured(self) -> bool:
        """Whether the trial's step time is made of it."""
        return not (self.is_warmup or self.is_under_trace)


@value
class PhaseTimes:
    """Mean seconds per measured step by phase, on the slowest rank of each."""

    forward_backward_s: Reported
    """Forward and backward, with the communication inside them and the pipeline's idle time."""
    gradient_sync_s: Reported
    """From the gradient of the first layer's input to complete gradients: waiting for collectives, and for the weights'
    gradients where a schedule computes them apart, and what replicas exchange in their place, before or behind the
    update."""
    optimizer_s: Reported
    """The optimizer's step and zeroing the gradients."""


@value
class Breakdown:
    """Where one rank's step went, from the profiler on steps that are not timed: the parts sum to ``step_s``.

    Communication is what stays exposed: time in which the rank computes nothing. A rank that waits for another in a
    collective spends that time in the collective.
    """

    rank: int
    """The rank of whose step these are the parts: the one that computes longest."""
    forward_s: float
    backward_s: float
    all_reduce_s: float
    all_gather_s: float
    reduce_scatter_s: float
    all_to_all_s: float
    send_receive_s: float
    """Sends and receives between pipeline stages, without the wait for the neighbour's result."""
    pipeline_idle_s: float
    """Waiting for a neighbour of the pipeline."""
    optimizer_s: float
    other_s: float
    """What is none of these: Python between the operations, reading the loss."""

    @property
    def step_s(self) -> float:
        """The whole step."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name != "rank"))


@value
class Measurement:
    """What a trial measured, after its warm-up."""

    step_time_s: Reported
    """Median of the measured steps; where replicas average their parameters every few steps, each with its part of
    that."""
    step_time_spread_s: Reported
    """Distance between the quartiles of the measured steps."""
    num_steps: int
    tokens_per_s: Reported
    model_flop_per_s: Reported
    """Whole job."""
    mfu: Reported
    """Model FLOP / (step time x sum of the ranks' reference peaks); full attention, nothing recomputed."""
    hfu: Reported
    """Hardware FLOP, recomputation counted, over the same."""
    peak_flop_per_s: Reported
    """Sum of the ranks' reference peaks, the denominator used."""
    peak_source: str
    """``data sheet`` or ``measured GEMM rate of N cores``."""
    peak_bytes: tuple[int, ...]
    """Highest allocated bytes of each rank, by rank; on CPU of tensors, on CUDA of the allocator. Of a registered
    trainer: as it reports them, of some ranks or of none, and of the whole process on CPU."""
    losses: tuple[Reported, ...]
    """One per step that was timed, warm-up included; empty where a trainer reports none."""
    foreign_cpu_share: Reported
    """Share of the machine's CPU time that others used meanwhile, 0..1."""
    environment: dict[str, str]
    """Versions, devices, clocks, variables of the libraries, as rank 0 saw them; its host's name hashed."""
    step_time_interval_s: float | None = None
    """Half the 95 % confidence interval of the median; None from fewer than six steps."""
    num_warmup_steps: int | None = None
    """Steps before timing started; None where it was not recorded."""
    reserved_bytes: tuple[int, ...] = ()
    """Highest bytes the allocator held, by rank; on CPU what the process grew by after its first step."""
    breakdown: Breakdown | None = None
    """None where no step was profiled."""
    compile_s: float = 0.0
    """What ``torch.compile`` took, part of no step time."""
    power_w: float | None = None
    """Mean draw of one accelerator during the measured steps; None where nothing measures it."""
    noise_floor: float | None = None
    """Relative difference of the medians of equal runs (A/A); None where the trial ran once."""
    num_disturbed: int = 0
    """Runs that were thrown away because others used the machine."""
    extrapolated_from: tuple[int, ...] = ()
    """Numbers of layers that ran instead of the model's; empty: the whole model ran."""
    breakdown_failure: str | None = None
    """Of what the profiled steps died; None where they did not, or none was asked for."""
    precision_flop_per_s: float | None = None
    """Sum over ranks of the dense peak of the layout's precision; None where it is not known."""
    phases: PhaseTimes | None = None
    """None where nobody divided the steps, as of a registered trainer."""
    is_simulated: bool = False
    """Nothing ran: these are figures of the cost model with seeded noise, and evidence of nothing."""
    timeline: StepTimeline | None = None
    """A profiled step, rank by rank; None where none was recorded, in lists, and once it was thinned away."""
    robust: RobustMeasurement | None = None
    """What it reached under the sweep's fault trace; None without one. All other figures are healthy steps'."""
    link_events: tuple[LinkEvent, ...] = ()
    """What a running pipeline found out about its links and ranks, and did about it, in order; steps count as
    ``StepReport`` does."""
    validation_loss: float | None = None
    """Of the batches behind the last step, on every rank's own parameters; None where there are none."""
    sync_payload_bytes: float | None = None
    """What the rank that sends most contributes to the exchange between replicas in an average step, before the
    collective's own factor; None where replicas sum their gradients, or nobody counts."""
    overlapped_share: float | None = None
    """Of the bytes of gradients that were reduced, those whose reduction started before the last gradient of their step
    was computed, by hooks; None where no hook hears of it, as under FSDP or in a registered trainer, and where nothing
    is reduced."""
    footprint: Footprint | None = None
    """What it takes beside time; None in records older than this field."""

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
    def relative_error(self) -> float:
        """Half the 95 % interval of step time, token rate and MFU, as a share of each."""
        return self.step_time_error_s / self.step_time_s

    @property
    def source(self) -> Literal["measured", "simulated"]:
        """The word for where its figures are from."""
        return "simulated" if self.is_simulated else "measured"

    @property
    def highest_peak_bytes(self) -> float | None:
        """Peak of the fullest rank; None where no rank told any."""
        return max(self.peak_bytes, default=None)

    @property
    @derived
    def precision_utilization(self) -> float | None:
        """Model FLOP over what the dense peak of the precision in use could do; never ranked by."""
        return self.model_flop_per_s / self.precision_flop_per_s if self.precision_flop_per_s else None


@value
class FinishedRun:
    """One of the runs that a trial consists of, kept so that a trial that is taken over does not repeat it."""

    number: int
    """``TrialSpec.run`` of the run."""
    seconds: float
    """How long it took, without waiting; all runs of a trial share its time limit."""
    measurement: Measurement


_Z95 = 1.96


@value
class MeasuredStretch:
    """Steps in a row in which no link changed."""

    first_step: int
    """Of the trace, from 0."""
    links: tuple[LinkHealth, ...]
    """Those that were not healthy."""
    step_times_s: tuple[float, ...]
    """Of each step, on the slowest rank."""


@value
class RobustMeasurement:
    """Steps under a fault trace, re-plans and what they cost included."""

    step_time_s: Positive
    """Mean of all steps of the trace: their total over their number, so that slow ones weigh what they took."""
    mfu: float
    """Model FLOP / (step time x sum of the ranks' reference peaks): robust MFU."""
    tokens_per_s: float
    """Of the whole job, over the whole trace."""
    num_steps: Count
    """Of the trace."""
    stretches: tuple[MeasuredStretch, ...]
    """The trace, cut where a link changes."""

    @classmethod
    def of(
        cls, trace: FaultTrace, step_times_s: Sequence[float], *, model_flop: float, peak_flop_per_s: float, tokens: int
    ) -> RobustMeasurement:
        """What the steps of a trace come to.

        Args:
            trace: What befell the links.
            step_times_s: Of every step of it, in order.
            model_flop: Of one step.
            peak_flop_per_s: Sum of the ranks' reference peaks.
            tokens: Of one step.

        Raises:
            InvalidInput: There are not as many times as the trace has steps.
        """
        if len(step_times_s) != trace.num_steps:
            raise InvalidInput("step_times_s", len(step_times_s), "must be one per step of the trace", trace.num_steps)
        mean_s = statistics.fmean(step_times_s)
        return cls(
            step_time_s=mean_s,
            mfu=model_flop / (mean_s * peak_flop_per_s),
            tokens_per_s=tokens / mean_s,
            num_steps=trace.num_steps,
            stretches=tuple(
                MeasuredStretch(
                    first_step=stretch.first_step,
                    links=stretch.links,
                    step_times_s=tuple(step_times_s[stretch.first_step :][: stretch.num_steps]),
                )
                for stretch in trace.stretches()
            ),
        )

    @property
    def step_time_error_s(self) -> float:
        """Half the 95 % interval of the mean, from how the steps of each stretch scatter.

        Stretches differ from each other on purpose, so only what differs inside one is chance; the first two steps of a
        stretch, in which a change is found and planned for, count with the others.
        """
        squares = sum(_sum_of_squares(stretch.step_times_s) for stretch in self.stretches)
        free = sum(len(stretch.step_times_s) - 1 for stretch in self.stretches)
        return _Z95 * math.sqrt(squares / max(1, free) / self.num_steps)

    @property
    def relative_error(self) -> float:
        """The same as a share of the mean."""
        return self.step_time_error_s / self.step_time_s


def _sum_of_squares(times_s: Sequence[float]) -> float:
    mean_s = statistics.fmean(times_s)
    return sum((time_s - mean_s) ** 2 for time_s in times_s)
