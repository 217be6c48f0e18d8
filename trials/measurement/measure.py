"""Computes a ``Measurement`` from the records of all ranks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function

from autotuner.core.measurement import Measurement, PhaseTimes, StepReport
from autotuner.core.measuring import Peak, TrialObservations, mean_over_period, measurement_of
from autotuner.core.stages import steps_per_exchange
from autotuner.core.trial_spec import TrialSpec
from autotuner.training.pipelines.pipeline import DeviceClock
from autotuner.trials.measurement.environment import CpuTime

# Marks moments of a step without making the device wait.

MARK = "trial: "
"""Prefix of a moment's name in a profile."""


class Stopwatch:
    """Records named moments of a step: on CUDA as events in the stream, on a CPU as times of the host.

    A profiler that runs at the same time records these moments, too.
    """

    def __init__(self, device: torch.device) -> None:
        self._clock = DeviceClock(device)
        self._marks: dict[str, Any] = {}

    def mark(self, name: str) -> None:
        """Record the present moment under a name. A later call with the same name replaces the moment."""
        with record_function(MARK + name):
            self._marks[name] = self._clock.now()

    def between_s(self, start: str, end: str) -> float:
        """Return the seconds between two named moments; on CUDA, wait until the second has passed."""
        return self._clock.between_s(self._marks[start], self._marks[end])

    def mark_backward_of(self, layer: nn.Module, name: str) -> None:
        """Record a moment in each backward pass: the moment when the gradient of the layer's input has been computed.

        Args:
            layer: The layer.
            name: The name of the moment.
        """

        def on_input(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            del module
            if args[0].requires_grad:
                args[0].register_hook(on_gradient)  # type: ignore[no-untyped-call]

        def on_gradient(gradient: Tensor) -> None:
            del gradient
            self.mark(name)

        layer.register_forward_pre_hook(on_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The memory, phase times, CPU time and power of one rank in the measured steps. Rank 0 collects all records."""

    host: str
    cpu: CpuTime
    """CPU time during the measured steps."""
    peak_bytes: int
    reserved_bytes: int
    phases: tuple[PhaseTimes, ...]
    """Phase times of each measured step."""
    compile_s: float
    power_w: float | None
    """Mean power in watts during the measured steps; None if it was not measured."""
    payload_bytes: tuple[int, ...] = ()
    """Bytes that this rank contributed to the exchange between replicas in each measured step; empty if replicas sum
    gradients."""
    reduced_bytes: int = 0
    """Bytes of gradients that were reduced in the measured steps, as far as hooks observed them."""
    overlapped_bytes: int = 0
    """Bytes whose reduction started before the last gradient of their step was computed."""


def phases_of(stopwatch: Stopwatch) -> PhaseTimes:
    """Return the times of the three phases of the latest step: forward and backward, gradient reduction, optimizer.

    They are computed from the moments that the stopwatch recorded.
    """
    averaging_s = stopwatch.between_s("updated", "agreed")
    return PhaseTimes(
        forward_backward_s=stopwatch.between_s("start", "first layer's gradient"),
        gradient_sync_s=stopwatch.between_s("first layer's gradient", "gradients complete") + averaging_s,
        optimizer_s=stopwatch.between_s("gradients complete", "end") - averaging_s,
    )


def measurement(
    spec: TrialSpec,
    peak: Peak,
    steps: Sequence[StepReport],
    ranks: Sequence[RankRecord],
    *,
    environment: Mapping[str, str],
) -> Measurement:
    """Return the measurement of a trial. The breakdown of the step time is added later.

    Args:
        spec: The specification of the trial.
        peak: The peak rate of the accelerator, by which MFU is computed.
        steps: The reports of all steps, from rank 0.
        ranks: The record of every rank.
        environment: The facts about the machines.
    """
    here = [record for record in ranks if record.host == ranks[0].host]
    measured = _Measured(
        steps=[report.step for report in steps if report.is_measured], period=steps_per_exchange(spec.layout)
    )
    seen = TrialObservations(
        peak_bytes=tuple(record.peak_bytes for record in ranks),
        reserved_bytes=tuple(record.reserved_bytes for record in ranks),
        phases=_slowest_phases(ranks, measured),
        foreign_cpu_share=here[0].cpu.foreign_share(sum(record.cpu.own_s for record in here)),
        compile_s=max(record.compile_s for record in ranks),
        power_w=_mean_power_w(ranks),
        sync_payload_bytes=max((measured.mean(r.payload_bytes) for r in ranks if r.payload_bytes), default=None),
        overlapped_share=_overlapped_share(ranks),
    )
    return measurement_of(spec, peak, steps, seen, environment=environment)


def _mean_power_w(ranks: Sequence[RankRecord]) -> float | None:
    """Return the mean power over the ranks that measured it; None if no rank did."""
    known = [record.power_w for record in ranks if record.power_w is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """The numbers of the measured steps, and the period after which steps repeat."""

    steps: Sequence[int]
    period: int

    def mean(self, values: Sequence[float]) -> float:
        """Return the mean over whole periods of one value per measured step."""
        return mean_over_period(self.steps, values, self.period)


def _overlapped_share(ranks: Sequence[RankRecord]) -> float | None:
    """Return the overlapped share of all ranks' reduced bytes; None if no rank observed a reduction."""
    reduced_bytes = sum(record.reduced_bytes for record in ranks)
    return sum(record.overlapped_bytes for record in ranks) / reduced_bytes if reduced_bytes else None


def _slowest_phases(ranks: Sequence[RankRecord], measured: _Measured) -> PhaseTimes:
    def slowest(name: str) -> float:
        return max(measured.mean([getattr(phases, name) for phases in record.phases]) for record in ranks)

    return PhaseTimes(
        forward_backward_s=slowest("forward_backward_s"),
        gradient_sync_s=slowest("gradient_sync_s"),
        optimizer_s=slowest("optimizer_s"),
    )
