"""From what the ranks saw to a ``Measurement``."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from autotuner.domain.choice import Recompute
from autotuner.domain.trial import Measurement, PhaseTimes, StepReport, TrialSpec
from trials.cores import CpuTime, cpu_name
from trials.place import host_name
from trials.stopwatch import Stopwatch

__all__ = ["Peak", "RankRecord", "measurement", "phases_of", "step_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What all ranks together could do: the denominator of MFU, and where it comes from."""

    flop_per_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """What one rank saw during the measured steps; one per step where it is a tuple."""

    host: str
    cpu: CpuTime
    peak_bytes: int
    phases: tuple[PhaseTimes, ...]

    @classmethod
    def of_this_rank(cls, *, cpu: CpuTime, peak_bytes: int, phases: Sequence[PhaseTimes]) -> RankRecord:
        """The record of the rank that calls."""
        return cls(host=host_name(), cpu=cpu, peak_bytes=peak_bytes, phases=tuple(phases))

    def gathered(self) -> list[RankRecord]:
        """The records of all ranks, by rank, on every rank."""
        records: list[RankRecord | None] = [None] * dist.get_world_size()
        dist.all_gather_object(records, self)
        return [record for record in records if record is not None]


def phases_of(stopwatch: Stopwatch) -> PhaseTimes:
    """The phases of the step that the stopwatch followed last."""
    return PhaseTimes(
        forward_backward_s=stopwatch.between_s("start", "first layer's gradient"),
        gradient_sync_s=stopwatch.between_s("first layer's gradient", "gradients complete"),
        optimizer_s=stopwatch.between_s("gradients complete", "end"),
    )


def step_report(spec: TrialSpec, peak: Peak, *, step: int, step_time_s: float, loss: float) -> StepReport:
    """One step as rank 0 reports it."""
    return StepReport(
        step=step,
        is_warmup=step < spec.settings.warmup_steps,
        step_time_s=step_time_s,
        loss=loss,
        tokens_per_s=spec.workload.tokens_per_step / step_time_s,
        mfu=_model_flop(spec) / (step_time_s * peak.flop_per_s),
    )


def measurement(spec: TrialSpec, peak: Peak, steps: Sequence[StepReport], ranks: Sequence[RankRecord]) -> Measurement:
    """The trial's answer, from rank 0's steps and every rank's record."""
    times_s = [report.step_time_s for report in steps if not report.is_warmup]
    median_s = statistics.median(times_s)
    available_flop = median_s * peak.flop_per_s
    here = [record for record in ranks if record.host == ranks[0].host]
    return Measurement(
        step_time_s=median_s,
        step_time_spread_s=_quartile_distance(times_s),
        num_steps=len(times_s),
        tokens_per_s=spec.workload.tokens_per_step / median_s,
        model_flop_per_s=_model_flop(spec) / median_s,
        mfu=_model_flop(spec) / available_flop,
        hfu=(_model_flop(spec) + _recomputed_flop(spec)) / available_flop,
        peak_flop_per_s=peak.flop_per_s,
        peak_source=peak.source,
        peak_bytes=tuple(record.peak_bytes for record in ranks),
        phases=_slowest_phases(ranks),
        losses=tuple(report.loss for report in steps),
        foreign_cpu_share=here[0].cpu.foreign_share(sum(record.cpu.own_s for record in here)),
        environment=_environment(spec),
    )


def _model_flop(spec: TrialSpec) -> int:
    return spec.model.model_flop_per_token(spec.workload.seq_len) * spec.workload.tokens_per_step


def _recomputed_flop(spec: TrialSpec) -> int:
    """Full recomputation runs every layer forward once more (arXiv 2205.05198, section 5); the ends it leaves alone."""
    if spec.layout.recompute != Recompute.FULL:
        return 0
    model = spec.model
    per_token = 2 * model.num_active_layer_matrix_parameters + model.attention_flop_per_token(spec.workload.seq_len)
    return per_token * spec.workload.tokens_per_step


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


def _environment(spec: TrialSpec) -> dict[str, str]:
    facts = {"python": platform.python_version(), "torch": torch.__version__, "kernel": os.uname().release}
    if spec.device == "cuda":
        version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        return {**facts, "device": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda), "nccl": version}
    return {**facts, "device": cpu_name(), "backend": "gloo"}
