"""From what the ranks saw to a ``Measurement``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotuner.domain.runs.trial import Measurement, PhaseTimes, StepReport, TrialSpec
from trials.measurement.cores import CpuTime
from trials.measurement.flop import model_flop, recomputed_flop
from trials.measurement.pace import half_interval_s
from trials.measurement.stopwatch import Stopwatch

__all__ = ["Peak", "RankRecord", "measurement", "phases_of", "step_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What all ranks together could do: the denominator of MFU, and where it comes from.

    Attributes:
        precision_flop_per_s: Their dense peak in the layout's precision; None where it is not known.
    """

    flop_per_s: float
    source: str
    precision_flop_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank saw.

    Attributes:
        cpu: Used during the measured steps.
        phases: One per measured step.
        power_w: Mean during the measured steps; None where nothing measures it.
    """

    host: str
    cpu: CpuTime
    peak_bytes: int
    reserved_bytes: int
    phases: tuple[PhaseTimes, ...]
    compile_s: float
    power_w: float | None


def phases_of(stopwatch: Stopwatch) -> PhaseTimes:
    """The phases of the step that the stopwatch followed last."""
    return PhaseTimes(
        forward_backward_s=stopwatch.between_s("start", "first layer's gradient"),
        gradient_sync_s=stopwatch.between_s("first layer's gradient", "gradients complete"),
        optimizer_s=stopwatch.between_s("gradients complete", "end"),
    )


def step_report(
    spec: TrialSpec, peak: Peak, *, step: int, is_warmup: bool, step_time_s: float, loss: float
) -> StepReport:
    """One step as rank 0 reports it."""
    return StepReport(
        step=step,
        is_warmup=is_warmup,
        step_time_s=step_time_s,
        loss=loss,
        tokens_per_s=spec.workload.tokens_per_step / step_time_s,
        mfu=model_flop(spec) / (step_time_s * peak.flop_per_s),
    )


def measurement(
    spec: TrialSpec,
    peak: Peak,
    steps: Sequence[StepReport],
    ranks: Sequence[RankRecord],
    *,
    environment: Mapping[str, str],
) -> Measurement:
    """The trial's answer, without a breakdown, from rank 0's steps and every rank's record."""
    times_s = [report.step_time_s for report in steps if not report.is_warmup]
    median_s = statistics.median(times_s)
    available_flop = median_s * peak.flop_per_s
    here = [record for record in ranks if record.host == ranks[0].host]
    return Measurement(
        step_time_s=median_s,
        step_time_spread_s=_quartile_distance(times_s),
        step_time_interval_s=half_interval_s(times_s),
        num_steps=len(times_s),
        num_warmup_steps=len(steps) - len(times_s),
        tokens_per_s=spec.workload.tokens_per_step / median_s,
        model_flop_per_s=model_flop(spec) / median_s,
        mfu=model_flop(spec) / available_flop,
        hfu=(model_flop(spec) + recomputed_flop(spec)) / available_flop,
        peak_flop_per_s=peak.flop_per_s,
        peak_source=peak.source,
        precision_flop_per_s=peak.precision_flop_per_s,
        peak_bytes=tuple(record.peak_bytes for record in ranks),
        reserved_bytes=tuple(record.reserved_bytes for record in ranks),
        phases=_slowest_phases(ranks),
        losses=tuple(report.loss for report in steps),
        foreign_cpu_share=here[0].cpu.foreign_share(sum(record.cpu.own_s for record in here)),
        environment=dict(environment),
        compile_s=max(record.compile_s for record in ranks),
        power_w=_mean_power_w(ranks),
    )


def _mean_power_w(ranks: Sequence[RankRecord]) -> float | None:
    """Mean over the ranks whose accelerators tell; None where none does."""
    known = [record.power_w for record in ranks if record.power_w is not None]
    return statistics.fmean(known) if known else None


def _quartile_distance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def _slowest_phases(ranks: Sequence[RankRecord]) -> PhaseTimes:
    def slowest(name: str) -> float:
        return max(statistics.fmean(getattr(phases, name) for phases in record.phases) for record in ranks)

    return PhaseTimes(
        forward_backward_s=slowest("forward_backward_s"),
        gradient_sync_s=slowest("gradient_sync_s"),
        optimizer_s=slowest("optimizer_s"),
    )
