"""From the times of a trial's steps to its ``Measurement``: those of our own decoder or of a registered trainer."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.link_words import links_in_brief
from autotuner.core.jobs.payload import steps_per_exchange
from autotuner.core.runs.flop import model_flop, recomputed_flop
from autotuner.core.runs.measurement import Measurement, PhaseTimes, StepReport
from autotuner.core.runs.pace import half_interval_s
from autotuner.core.runs.periods import levelled
from autotuner.core.runs.robust import RobustMeasurement
from autotuner.core.runs.trial_spec import TrialSpec

__all__ = ["FOREIGN_CPU_SHARE", "LINKS", "Peak", "Seen", "measurement_of", "quartile_distance", "step_report"]


LINKS = "links"
"""Fact of a measurement's environment: what ails the links of its cluster; left out where nothing does."""

FOREIGN_CPU_SHARE = "foreign_cpu_share"
"""Fact of a measurement's environment: neighbours are part of what a trial ran on."""


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
class Seen:
    """What was seen of the ranks beside their steps; fields are those of ``Measurement``.

    Attributes:
        peak_bytes: By rank, of those that told it.
        phases: None where nobody divided the steps.
    """

    peak_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...] = ()
    phases: PhaseTimes | None = None
    foreign_cpu_share: float
    compile_s: float = 0.0
    power_w: float | None = None
    sync_payload_bytes: float | None = None
    overlapped_share: float | None = None


def step_report(
    spec: TrialSpec,
    peak: Peak,
    *,
    step: int,
    is_warmup: bool,
    step_time_s: float,
    loss: float,
    tokens: int | None = None,
    is_under_trace: bool = False,
) -> StepReport:
    """One step as the sweep hears of it.

    Args:
        spec: The trial.
        peak: What MFU is a share of.
        step: Counts from 0.
        is_warmup: It does not count.
        step_time_s: On the slowest rank.
        loss: No number where nobody knows it.
        tokens: Of the whole job in this step; None: the workload's.
        is_under_trace: It counts for robust figures alone.
    """
    share = 1.0 if tokens is None else tokens / spec.workload.tokens_per_step
    return StepReport(
        step=step,
        is_warmup=is_warmup,
        step_time_s=step_time_s,
        loss=loss,
        tokens_per_s=share * spec.workload.tokens_per_step / step_time_s,
        mfu=share * model_flop(spec) / (step_time_s * peak.flop_per_s),
        is_under_trace=is_under_trace,
    )


def measurement_of(
    spec: TrialSpec, peak: Peak, steps: Sequence[StepReport], seen: Seen, *, environment: Mapping[str, str]
) -> Measurement:
    """The trial's answer, without a breakdown, from every step that was timed, warm-up included."""
    measured = [report for report in steps if report.is_measured]
    numbers, all_times_s = [report.step for report in measured], [report.step_time_s for report in measured]
    times_s = levelled(numbers, all_times_s, steps_per_exchange(spec.layout))
    median_s = statistics.median(times_s)
    available_flop = median_s * peak.flop_per_s
    return Measurement(
        step_time_s=median_s,
        step_time_spread_s=quartile_distance(times_s),
        step_time_interval_s=half_interval_s(times_s),
        num_steps=len(measured),
        num_warmup_steps=sum(report.is_warmup for report in steps),
        tokens_per_s=spec.workload.tokens_per_step / median_s,
        model_flop_per_s=model_flop(spec) / median_s,
        mfu=model_flop(spec) / available_flop,
        hfu=(model_flop(spec) + recomputed_flop(spec)) / available_flop,
        peak_flop_per_s=peak.flop_per_s,
        peak_source=peak.source,
        precision_flop_per_s=peak.precision_flop_per_s,
        peak_bytes=seen.peak_bytes,
        reserved_bytes=seen.reserved_bytes,
        phases=seen.phases,
        losses=tuple(report.loss for report in steps),
        foreign_cpu_share=seen.foreign_cpu_share,
        environment={**environment, **_links(spec.cluster), FOREIGN_CPU_SHARE: f"{seen.foreign_cpu_share:.2f}"},
        compile_s=seen.compile_s,
        power_w=seen.power_w,
        sync_payload_bytes=seen.sync_payload_bytes,
        overlapped_share=seen.overlapped_share,
        robust=_robust(spec, peak, [report.step_time_s for report in steps if report.is_under_trace]),
    )


def _links(cluster: Cluster | None) -> dict[str, str]:
    said = links_in_brief(cluster.link_health, between_nodes=cluster.num_nodes > 1) if cluster else ""
    return {LINKS: said} if said else {}


def _robust(spec: TrialSpec, peak: Peak, step_times_s: Sequence[float]) -> RobustMeasurement | None:
    if spec.fault_trace is None:
        return None
    return RobustMeasurement.of(
        spec.fault_trace,
        step_times_s,
        model_flop=model_flop(spec),
        peak_flop_per_s=peak.flop_per_s,
        tokens=spec.workload.tokens_per_step,
    )


def quartile_distance(values: Sequence[float]) -> float:
    """From the first quartile to the third; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first
