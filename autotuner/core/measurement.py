"""Measurement: the results of a trial."""

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
    """The mean power draw in watts of a whole job while it trains, by consumer."""

    accelerators_w: NonNegative
    """Power that all accelerators draw together."""
    hosts_w: NonNegative
    """Power that the nodes draw without their accelerators."""
    network_w: NonNegative
    """Power that network ports and switches use for the bytes that leave nodes."""
    building_w: NonNegative
    """Power that cooling and transformers add (power usage effectiveness)."""
    is_measured: bool = False
    """True if the accelerators' part was measured. The other parts are always estimated."""

    @property
    def total_w(self) -> float:
        """The power draw of all consumers together, in watts."""
        return self.accelerators_w + self.hosts_w + self.network_w + self.building_w


@value
class ResourceCost:
    """The cost of a job other than time: power, money, emissions, complexity. Values per hour are for the whole job."""

    power: Power | None
    """Mean power draw of the job; None if the accelerator's power is not known."""
    price_per_hour: NonNegative
    """US dollars per hour for accelerators, and for energy that is paid separately; 0 if no price is known."""
    co2_kg_per_hour: NonNegative
    """Emissions of the energy in kg of CO2 equivalents per hour; 0 if the energy mix is not known."""
    complexity: NonNegative
    """Weighted number of differences from a plain layout, and of special hardware that the layout needs
    (docs/explanation/objectives.md)."""
    robustness: float | None = None
    """Throughput under the sweep's fault trace divided by that of nominal steps; None without a trace."""

    def kwh_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the kWh of energy per million trained tokens at this token rate; None if no power is known."""
        return None if self.power is None else _of_a_million(self.power.total_w / 1000, tokens_per_s)

    def price_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the US dollars per million trained tokens at this token rate; None if no price is known."""
        return _of_a_million(self.price_per_hour, tokens_per_s) if self.price_per_hour else None

    def co2_kg_per_million_tokens(self, tokens_per_s: float) -> float | None:
        """Return the kg of CO2 per million trained tokens at this token rate; None if emissions are not known."""
        return _of_a_million(self.co2_kg_per_hour, tokens_per_s) if self.co2_kg_per_hour else None


def _of_a_million(per_hour: float, tokens_per_s: float) -> float:
    return 1e6 * per_hour / (tokens_per_s * 3600.0)


class LinkEventKind(StrEnum):
    """The kinds of events about links and ranks in a running pipeline, such as a slow link or a new plan."""

    LINK_SLOW = "link_slow"  # a link between stages delays messages
    LINK_RECOVERED = "link_recovered"
    LINK_DEAD = "link_dead"  # no message passes the link any more; delegates send instead
    RANK_SLOW = "rank_slow"  # a stage computes longer than before; no link is the cause
    RANK_RECOVERED = "rank_recovered"
    REPLANNED = "replanned"  # all ranks follow another plan from the next step on


@value
class LinkEvent:
    """An event of a running pipeline at one step: a link or rank became slow or recovered, or the plan changed.

    The plan is the order in which the pipeline ranks run their passes.
    """

    step: int
    """Number of the trial's step, counted as in its step reports."""
    kind: LinkEventKind
    stages: tuple[int, ...] = ()
    """The two pipeline ranks of the link, or the one slow rank; empty if the event is a new plan."""
    delay_s: float = 0.0
    """One-way delay that was found on the link; 0 if the event is a recovery."""
    warm_up: tuple[int, ...] = ()
    """Number of forward passes of each pipeline rank before its first backward pass, if the event is a new plan."""
    delegated: bool = False
    """True if the event is a new plan in which sends are delegated."""
    cost_s: float = 0.0
    """Seconds that the event added to a step."""


@value
class StepReport:
    """The report of one training step, with the time of the slowest rank; ``step`` counts from 0, warm-up included."""

    step: int
    is_warmup: bool
    """True if the step does not count, because step times were not yet stationary when it ran."""
    step_time_s: Reported
    loss: Reported
    tokens_per_s: Reported
    mfu: Reported
    is_under_trace: bool = False
    """True if the step ran under the sweep's fault trace, after the measured steps. Such a step counts only for the
    results under faults."""

    @property
    def is_measured(self) -> bool:
        """True if the step counts for the trial's step time: it is not part of the warm-up or of a fault trace.

        A fault trace injects link faults into steps after the measured ones.
        """
        return not (self.is_warmup or self.is_under_trace)


@value
class PhaseTimes:
    """The mean seconds of a measured step by phase (passes, gradient sync, optimizer), each on its slowest rank."""

    forward_backward_s: Reported
    """Time of the forward and backward passes, with the communication inside them and the pipeline's idle time."""
    gradient_sync_s: Reported
    """Time from the gradient of the first layer's input until the gradients are complete. It includes the wait for
    collectives, and the gradients of weights if a schedule computes them separately. Where replicas do not sum
    gradients, it includes their other exchange."""
    optimizer_s: Reported
    """Time of the optimizer's step and of zeroing the gradients."""


@value
class Breakdown:
    """The time of one step of one rank by part, from the profiler. The parts sum to ``step_s``.

    The profiled steps are not among the timed ones. Communication counts only while the rank computes nothing (exposed
    communication). A rank that waits for another rank inside a collective counts this time as communication.
    """

    rank: int
    """Number of the rank that the parts of the step belong to: the rank that computes longest."""
    forward_s: float
    backward_s: float
    all_reduce_s: float
    all_gather_s: float
    reduce_scatter_s: float
    all_to_all_s: float
    send_receive_s: float
    """Sends and receives between pipeline stages, without the wait for the neighbour's result."""
    pipeline_idle_s: float
    """Time of waiting for a neighbour of the pipeline."""
    optimizer_s: float
    other_s: float
    """Time of everything else, such as Python code between the operations, and reading the loss."""

    @property
    def step_s(self) -> float:
        """The seconds of the whole step: the sum of all parts."""
        return float(sum(getattr(self, f.name) for f in fields(self) if f.name != "rank"))


@value
class Measurement:
    """The measured (or simulated) results of a trial, without its warm-up."""

    step_time_s: Reported
    """Median of the measured steps. If replicas average their parameters every few steps, each step includes its share
    of that time."""
    step_time_spread_s: Reported
    """Distance between the quartiles of the measured steps."""
    num_steps: int
    tokens_per_s: Reported
    model_flop_per_s: Reported
    """Model FLOP per second of the whole job."""
    mfu: Reported
    """Model FLOP / (step time x sum of the ranks' reference peaks), with full attention and without recomputation."""
    hfu: Reported
    """Hardware FLOP, including recomputation, divided by the same denominator as ``mfu``."""
    peak_flop_per_s: Reported
    """Sum of the ranks' reference peaks, which is the denominator of MFU."""
    peak_source: str
    """Source of the peak: ``data sheet`` or ``measured GEMM rate of N cores``."""
    peak_bytes: tuple[int, ...]
    """Highest allocated bytes of each rank: of its tensors on CPU, of PyTorch's allocator on CUDA. A registered trainer
    may report some ranks or none, and on CPU it reports the whole process."""
    losses: tuple[Reported, ...]
    """Loss of each timed step, including the warm-up; empty if a trainer reports none."""
    foreign_cpu_share: Reported
    """Share of the machine's CPU time that other processes used during the measured steps, 0..1."""
    environment: dict[str, str]
    """Versions, devices, clocks and library variables, as rank 0 saw them. The host's name is hashed."""
    step_time_interval_s: float | None = None
    """Half of the 95 % confidence interval of the median step time; None with fewer than six steps."""
    num_warmup_steps: int | None = None
    """Number of steps before timing started; None if it was not recorded."""
    reserved_bytes: tuple[int, ...] = ()
    """Highest bytes that the allocator held, by rank; on CPU, the growth of the process after its first step."""
    breakdown: Breakdown | None = None
    """Time of one rank's step by part; None if no step was profiled."""
    compile_s: float = 0.0
    """Seconds that ``torch.compile`` took. They are not part of any step time."""
    power_w: float | None = None
    """Mean draw of one accelerator during the measured steps; None if it was not measured."""
    noise_floor: float | None = None
    """Relative difference between the medians of equal runs (A/A test); None if the trial ran once."""
    num_disturbed: int = 0
    """Number of runs that were discarded because other processes used the machine."""
    extrapolated_from: tuple[int, ...] = ()
    """Numbers of layers that ran instead of the model's layers; empty: the whole model ran."""
    breakdown_failure: str | None = None
    """Error that ended the profiled steps; None if they succeeded or were not requested."""
    precision_flop_per_s: float | None = None
    """Sum over the ranks of the dense peak in the layout's precision; None if it is not known."""
    phases: PhaseTimes | None = None
    """Mean seconds of each phase; None if the steps were not divided, as with a registered trainer."""
    is_simulated: bool = False
    """True if nothing ran. The figures then come from the cost model with seeded noise, and are no evidence."""
    timeline: StepTimeline | None = None
    """Timeline of a profiled step, rank by rank. None if none was recorded, in lists, and after retention deleted
    it."""
    robust: RobustMeasurement | None = None
    """Result under the sweep's fault trace; None without a trace. All other fields describe steps without faults."""
    link_events: tuple[LinkEvent, ...] = ()
    """Slow links and ranks that a running pipeline found, and how it reacted, in order. Steps count as in
    ``StepReport``."""
    validation_loss: float | None = None
    """Loss on the validation batches after the last step, computed with each rank's own parameters; None without such
    batches."""
    sync_payload_bytes: float | None = None
    """Bytes that the busiest rank contributes to the exchange between replicas in an average step, before the
    collective's own factor; None if replicas sum their gradients, or if nothing counts the bytes."""
    overlapped_share: float | None = None
    """Share of the reduced gradient bytes whose reduction started before the last gradient of their step was computed.
    None if it was not counted, as with FSDP or a registered trainer, and if nothing is reduced."""
    resource_cost: ResourceCost | None = None
    """Cost, energy and complexity of the job; None in records older than this field."""

    @property
    def step_time_error_s(self) -> float:
        """Half the width of the 95 % interval of the step time, in seconds.

        If there are too few steps for an interval, the half width is estimated from the quartiles. The quartiles of
        normally distributed times lie 1.349 standard deviations apart, and a median of n times has a standard error of
        1.253 / sqrt(n) standard deviations (any table of order statistics).
        """
        if self.step_time_interval_s is not None:
            return self.step_time_interval_s
        return 1.96 * 1.253 * self.step_time_spread_s / 1.349 / math.sqrt(max(1, self.num_steps))

    @property
    def relative_error(self) -> float:
        """Half the width of the 95 % interval of step time, token rate and MFU, as a share of the value."""
        return self.step_time_error_s / self.step_time_s

    @property
    def source(self) -> Literal["measured", "simulated"]:
        """The word that tells where the results come from: ``measured`` or ``simulated``."""
        return "simulated" if self.is_simulated else "measured"

    @property
    def highest_peak_bytes(self) -> float | None:
        """The peak memory in bytes of the rank that uses the most memory; None if no rank reported its peak."""
        return max(self.peak_bytes, default=None)

    @property
    @derived
    def precision_utilization(self) -> float | None:
        """Model FLOP per second divided by the dense peak of the precision in use; None if it is not known.

        Layouts are never ranked by it.
        """
        return self.model_flop_per_s / self.precision_flop_per_s if self.precision_flop_per_s else None


@value
class FinishedRun:
    """One finished run of a trial that has several runs. It is stored, so that no other worker repeats it."""

    number: int
    """Number of the run inside its trial, as in ``TrialSpec.run``."""
    seconds: float
    """Seconds that the run took, without waiting for devices. All runs of a trial share its time limit."""
    measurement: Measurement


_Z95 = 1.96


@value
class MeasuredStretch:
    """Consecutive steps of a fault trace between two changes of links, with the measured time of each step."""

    first_step: int
    """First step of the stretch, counted from 0 at the start of the trace."""
    links: tuple[LinkHealth, ...]
    """Links that were degraded during the stretch, with their states."""
    step_times_s: tuple[float, ...]
    """Time of each step, on the slowest rank."""


@value
class RobustMeasurement:
    """The results of a trial's steps under a fault trace (injected link faults).

    The steps include those in which the pipeline plans its order of passes anew, and the cost of the new plans.
    """

    step_time_s: Positive
    """Mean time of all steps of the trace. It is a mean and not a median, so that slow steps count fully."""
    mfu: float
    """Model FLOP / (step time x sum of the ranks' reference peaks): robust MFU."""
    tokens_per_s: float
    """Tokens per second of the whole job, over the whole trace."""
    num_steps: Count
    """Number of steps of the trace."""
    stretches: tuple[MeasuredStretch, ...]
    """Parts of the trace. A new part begins wherever a link changes its state."""

    @classmethod
    def of(
        cls, trace: FaultTrace, step_times_s: Sequence[float], *, model_flop: float, peak_flop_per_s: float, tokens: int
    ) -> RobustMeasurement:
        """Return the results of a trial's steps under a fault trace (injected link faults).

        Args:
            trace: Faults of the links.
            step_times_s: Seconds of every step of the trace, in order.
            model_flop: FLOP of one step.
            peak_flop_per_s: Sum of the ranks' reference peaks.
            tokens: Tokens of one step.

        Raises:
            InvalidInput: The number of step times differs from the number of steps of the trace.
        """
        if len(step_times_s) != trace.num_steps:
            raise InvalidInput(
                "step_times_s", len(step_times_s), "must have one step time for each step of the trace", trace.num_steps
            )
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
        """Half the width of the 95 % interval of the mean step time, in seconds.

        Different faults make steps differ on purpose. Therefore only the scatter inside each stretch (consecutive steps
        in which no link changes) counts as noise. The first two steps of a stretch, in which the pipeline finds the
        change and plans for it, are included.
        """
        squares = sum(_sum_of_squares(stretch.step_times_s) for stretch in self.stretches)
        free = sum(len(stretch.step_times_s) - 1 for stretch in self.stretches)
        return _Z95 * math.sqrt(squares / max(1, free) / self.num_steps)

    @property
    def relative_error(self) -> float:
        """Half the width of the 95 % interval of the mean step time, as a share of the mean."""
        return self.step_time_error_s / self.step_time_s


def _sum_of_squares(times_s: Sequence[float]) -> float:
    mean_s = statistics.fmean(times_s)
    return sum((time_s - mean_s) ** 2 for time_s in times_s)
