"""The steps of a trial on one rank: warm-up steps, measured steps, steps under a fault trace, and profiled steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from autotuner.core.choices import GradientSync
from autotuner.core.measurement import Breakdown, LinkEvent, PhaseTimes, StepReport
from autotuner.core.measuring import Pace, Peak, averages_in, shows_average, step_rates
from autotuner.core.stages import steps_per_exchange
from autotuner.core.timeline import StepTimeline
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.pipelines.standby import Standby
from autotuner.trials.distributed.context import context_part
from autotuner.trials.distributed.mesh import Grid
from autotuner.trials.distributed.parallelize import parallel_stages
from autotuner.trials.faults import LinkFaults, place_on
from autotuner.trials.job.steered import SteeredPipeline
from autotuner.trials.measurement.breakdown import breakdown_of, longest_computing
from autotuner.trials.measurement.environment import CpuTime, PowerMeter, environment, gpu_of, of_all_ranks
from autotuner.trials.measurement.measure import RankRecord, Stopwatch, measurement, phases_of
from autotuner.trials.measurement.memory import MemoryWatch
from autotuner.trials.measurement.recording import Recording, recorded
from autotuner.trials.measurement.step_timeline import ActionLog, RankRecording, RecordedStep, is_shown, step_timeline
from autotuner.trials.options import compile_time_s
from autotuner.trials.rank import Reporter, barrier, host_name
from autotuner.trials.step.data import Batch, as_drawn, batch
from autotuner.trials.step.step import Step, build_step

T = TypeVar("T")


def run_steps(
    spec: TrialSpec, reporter: Reporter, device: torch.device, grid: Grid, peak: Peak, standby: Standby | None = None
) -> None:
    """Build the training step of a trial, run it as often as the settings say, and report the measurement of all ranks.

    The measurement is reported before any step is profiled. If a rank dies while its steps are profiled, no later
    collective can succeed, and the measurement could not be collected any more.

    Args:
        spec: The specification of the trial.
        reporter: Writes the reports of this rank.
        device: The device of this rank.
        grid: The grid of ranks, with this rank's place on it.
        peak: The peak rate of the accelerator, by which MFU is computed.
        standby: Sends the messages of a planned pipeline; None: the process group of the pipeline sends them.
    """
    watch, gpu = MemoryWatch(device), gpu_of(device)
    watch.start()
    stages = parallel_stages(spec, grid, device)
    log = ActionLog(device)
    step = build_step(spec, stages, grid, Stopwatch(device), log, standby)
    steps = _Steps(
        spec=spec,
        reporter=reporter,
        device=device,
        grid=grid,
        peak=peak,
        step=step,
        log=log,
        watch=watch,
        pace=Pace(spec.settings, period=steps_per_exchange(spec.layout)),
        faults=LinkFaults.of(spec, grid, step.pipeline, device),
        steered=SteeredPipeline.of(spec, place_on(grid), step.pipeline, _gathered),
    )
    steps.warm_up()
    helpers = standby.pids if standby is not None else ()
    step.overlap.reset()
    cpu, power = CpuTime.now(helpers), PowerMeter.start(gpu)
    steps.measure()
    used, power_w = CpuTime.now(helpers).since(cpu), power.mean_w()
    steps.replay()
    record = RankRecord(
        host=host_name(),
        cpu=used,
        power_w=power_w,
        phases=tuple(steps.phases),
        payload_bytes=tuple(steps.payload_bytes),
        peak_bytes=watch.peak_bytes,
        reserved_bytes=watch.reserved_bytes,
        compile_s=compile_time_s(),
        reduced_bytes=step.overlap.reduced_bytes,
        overlapped_bytes=step.overlap.overlapped_bytes,
    )
    facts = of_all_ranks(_gathered(environment(device, gpu)))
    of_its_steps = as_drawn(spec, [report.step for report in steps.reports if report.is_measured])
    measured = measurement(of_its_steps, peak, steps.reports, _gathered(record), environment=facts)
    reporter.report(replace(measured, validation_loss=steps.validation_loss()))
    if spec.settings.profiled_steps:
        breakdown = steps.breakdown(stages)
        reporter.report(_timeline(spec, _gathered(steps.recording)))
        reporter.report(longest_computing(_gathered(breakdown)))


def _timeline(spec: TrialSpec, recordings: Sequence[RankRecording]) -> StepTimeline:
    shown = [one for one in recordings if is_shown(one.rank, spec.layout)]
    return step_timeline(shown, spec.layout, spec.workload.num_micro_batches(spec.layout))


@dataclass(slots=True, kw_only=True)
class _Steps:
    """Repeats a step, each time with the next batch."""

    spec: TrialSpec
    reporter: Reporter
    device: torch.device
    grid: Grid
    peak: Peak
    step: Step
    log: ActionLog
    watch: MemoryWatch
    pace: Pace
    faults: LinkFaults | None = None
    """The injected faults of the links; None if no link is ever slow."""
    steered: SteeredPipeline | None = None
    """The pipeline that observes its links and is planned around slow ones; None if the layout has no such pipeline."""
    found: tuple[LinkEvent, ...] = ()
    """Link events in the last step."""
    reports: list[StepReport] = field(default_factory=list)
    """Reports of all timed steps, warm-up included."""
    phases: list[PhaseTimes] = field(default_factory=list)
    """Phase times of each measured step."""
    payload_bytes: list[int] = field(default_factory=list)
    """Bytes that this rank contributed to the exchange in each measured step, if replicas exchange less than their
    gradients."""
    recorded: list[RecordedStep] = field(default_factory=list)
    """Each profiled step, on a rank that has a lane in the timeline."""

    def warm_up(self) -> None:
        """Run steps until the step time is stationary."""
        while not self.pace.is_warm:
            self._timed(is_warmup=True)
        if self.steered is not None:
            self.steered.begin(self._most_in_flight)

    def _most_in_flight(self, in_flight: int) -> int:
        """Return how many micro-batches fit into this rank's memory, given what ``in_flight`` of them took."""
        limit_bytes = self.spec.settings.memory_budget_bytes or self.spec.memory_bytes
        taken_bytes = self.watch.reserved_bytes
        if limit_bytes is None or taken_bytes == 0:
            return self.spec.workload.num_micro_batches(self.spec.layout)
        return in_flight + max(0, int((limit_bytes - taken_bytes) * in_flight / taken_bytes))

    def measure(self) -> None:
        """Run steps until the median of the step times is known well enough."""
        while not self.pace.is_done:
            self._timed(is_warmup=False)
            self.phases.append(phases_of(self.step.stopwatch))
            if self.step.optimizer.exchange is not None:
                self.payload_bytes.append(self.step.optimizer.exchange.payload_bytes)

    def replay(self) -> None:
        """Run the steps of the fault trace with its faults, and restore the links afterwards."""
        trace = self.spec.fault_trace
        if trace is None or self.faults is None:
            return
        for stretch in trace.stretches():
            self.faults.meet(stretch.links)
            for _ in range(stretch.num_steps):
                self._timed(is_under_trace=True)
        self.faults.meet(())

    def validation_loss(self) -> float | None:
        """Return the mean loss of the validation batches, which are not trained on; None if there are none."""
        languages, num_batches = self.spec.settings.num_languages, self.spec.settings.num_validation_batches
        turns = (number * languages // num_batches for number in range(num_batches))
        losses = [self.step.evaluate(self._batch(number, turn)) for number, turn in enumerate(turns, len(self.reports))]
        return statistics.fmean(losses) if losses else None

    def breakdown(self, stages: Sequence[nn.Module]) -> Breakdown:
        """Return where profiled steps spend their time; they are not timed, because the profiler slows them down.

        If replicas average their parameters only every few steps, a step with averaging is profiled too.
        """
        recordings: dict[int, Recording] = {}
        number, period = len(self.reports), steps_per_exchange(self.spec.layout)
        while len(recordings) < self.spec.settings.profiled_steps or not shows_average(list(recordings), period):
            if len(recordings) < self.spec.settings.profiled_steps or averages_in(number, period):
                with recorded(self.device, stages) as recordings[number]:
                    self._run(number, is_recorded=is_shown(dist.get_rank(), self.spec.layout))
            else:
                self._run(number)
            number += 1
        return breakdown_of(recordings, self.spec.layout, self.device, rank=dist.get_rank())

    @property
    def recording(self) -> RankRecording:
        """Return the profiled steps that this rank recorded."""
        return RankRecording(rank=dist.get_rank(), host=host_name(), steps=tuple(self.recorded))

    def _timed(self, *, is_warmup: bool = False, is_under_trace: bool = False) -> None:
        number = len(self.reports)
        loss = self._run(number)
        if number == 0:
            self.watch.stop()
        step_time_s = self._of_slowest_rank(self.step.stopwatch.between_s("begin", "done"))
        if not is_under_trace:
            self.pace.add(step_time_s)
        tokens_per_s, mfu = step_rates(as_drawn(self.spec, [number]), self.peak, step_time_s)
        report = StepReport(
            step=number,
            is_warmup=is_warmup,
            step_time_s=step_time_s,
            loss=loss,
            tokens_per_s=tokens_per_s,
            mfu=mfu,
            is_under_trace=is_under_trace,
        )
        self.reports.append(report)
        self.reporter.report(report)
        for event in self.found:
            self.reporter.report(event)

    def _run(self, number: int, *, is_recorded: bool = False) -> float:
        """Run one step and return its seconds, from when all ranks are ready until the last rank is done."""
        own_batch = self._batch(number)
        barrier(self.device)
        self.step.stopwatch.mark("begin")
        if is_recorded:
            self.log.begin()
        loss = self.step(own_batch, number=number)
        if self.steered is not None and not is_recorded:
            self.found = self.steered.after_step(number)
        self.step.stopwatch.mark("done")
        if is_recorded:
            complete_s, end_s, done_s = map(self._since_begin_s, ("gradients complete", "end", "done"))
            averaging_s = tuple(map(self._since_begin_s, ("updated", "agreed"))) if self._has_averaged(number) else ()
            self.recorded.append(self.log.end(complete_s, end_s, done_s, averaging_s=averaging_s))
        return loss

    def _batch(self, number: int, turn: int = 0) -> Batch:
        """Return this rank's batch for a step; ``turn`` selects the language of another rank."""
        return batch(
            self.spec,
            step=number,
            data_parallel_rank=self.grid.data_parallel_rank,
            device=self.device,
            part=context_part(self.grid),
            turn=turn,
        )

    def _since_begin_s(self, moment: str) -> float:
        return self.step.stopwatch.between_s("begin", moment)

    def _has_averaged(self, number: int) -> bool:
        """Return True if replicas averaged their parameters in this step."""
        period = steps_per_exchange(self.spec.layout)
        return self.spec.layout.gradient_sync == GradientSync.DILOCO and averages_in(number, period)

    def _of_slowest_rank(self, step_time_s: float) -> float:
        """Return the longest time of any rank; every rank gets it, so that all decide alike on the next steps."""
        slowest = torch.tensor(step_time_s, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        return slowest.item()


def _gathered(own: T) -> list[T]:
    """Return the values of all ranks, by rank, on every rank."""
    found: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return [one for one in found if one is not None]
