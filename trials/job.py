"""A trial from the first collective to the measurement, as every rank runs it."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # exported, but not by name

from autotuner.domain import wire
from autotuner.domain.trial import StepReport, TrialSpec
from autotuner.errors import InvalidInput
from trials import gemm
from trials.admission import admit
from trials.build import build_step
from trials.cores import CpuTime, num_cores_used, own_core, pin
from trials.data import batch
from trials.failure import classify, headline
from trials.measure import Peak, RankRecord, measurement, phases_of, step_report
from trials.memory import MemoryWatch, lift_limit, limit
from trials.mesh import Grid
from trials.parallelize import parallel_decoder
from trials.place import Place, device_of, join, meet
from trials.report import Reporter
from trials.step import Step
from trials.stopwatch import Stopwatch
from trials.weights import parameter_dtype

__all__ = ["EXIT_FAILED", "EXIT_MEASURED", "EXIT_REFUSED", "attempt"]

EXIT_MEASURED = 0
"""The reports end with a measurement."""
EXIT_FAILED = 1
"""The trial died; the reports say of what."""
EXIT_REFUSED = 2
"""The spec cannot run on these ranks, or cannot be read; where the reports could be written, they say why."""


def attempt(spec_text: str, reporter: Reporter, place: Place, *, store: Store | None = None) -> int:
    """Run the trial that a JSON text describes, as one of its ranks; bad news goes to the reports.

    The process is not fit for another trial afterwards: it is bound to a core, and its groups are left to its end.
    """
    try:
        spec = wire.loads(TrialSpec, spec_text)
        admit(spec, place)
        _run(spec, reporter, place, store)
    except InvalidInput as error:
        reporter.failure(classify(error), headline(error), traceback.format_exc())
        return EXIT_REFUSED
    except Exception as error:
        lift_limit()
        reporter.failure(classify(error), headline(error), traceback.format_exc())
        traceback.print_exc()
        return EXIT_FAILED
    return EXIT_MEASURED


def _run(spec: TrialSpec, reporter: Reporter, place: Place, store: Store | None) -> None:
    device = device_of(spec.device, place)
    num_cores = num_cores_used(place)
    if device.type == "cpu":
        pin(own_core(place))
        torch.set_num_threads(1)
    join(device, place, timeout_s=spec.settings.timeout_s, store=store)
    reporter.started(spec, world_size=place.world_size)
    grid = Grid(spec.layout, device)
    peak = _peak(spec, device, place, num_cores)
    if spec.settings.memory_budget_bytes is not None:
        limit(device, spec.settings.memory_budget_bytes)
    _Trial(spec=spec, reporter=reporter, device=device, grid=grid, peak=peak).run()


def _peak(spec: TrialSpec, device: torch.device, place: Place, num_cores: int) -> Peak:
    """The ranks' peaks together: as given, or measured on all of them at once.

    Ranks that share a core share its rate. No data sheet gives a core's, so one that is given was measured as well.
    """
    num_nodes = place.world_size // place.local_world_size
    measured = f"measured GEMM rate of {num_cores * num_nodes} cores"
    if spec.peak_flop_per_s is not None:
        total_flop_per_s = spec.peak_flop_per_s * place.world_size
        return Peak(flop_per_s=total_flop_per_s, source=measured if device.type == "cpu" else "data sheet")
    meet(device)
    rate = gemm.flop_per_s(device, parameter_dtype(spec.layout.precision))
    if device.type == "cpu":
        rate *= num_cores / place.local_world_size
    total = torch.tensor(rate, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    if device.type == "cuda":
        measured = f"measured GEMM rate of {place.world_size} devices"
    return Peak(flop_per_s=total.item(), source=measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The steps of a trial on one rank."""

    spec: TrialSpec
    reporter: Reporter
    device: torch.device
    grid: Grid
    peak: Peak

    def run(self) -> None:
        """Build, warm up, measure and report."""
        settings, stopwatch, watch = self.spec.settings, Stopwatch(self.device), MemoryWatch(self.device)
        reports, phases, start = [], [], CpuTime.now()
        watch.start()
        model = parallel_decoder(self.spec, self.grid, self.device)
        step = build_step(self.spec, model, self.grid, self.device, stopwatch)
        for number in range(settings.warmup_steps + settings.measured_steps):
            if number == settings.warmup_steps:
                start = CpuTime.now()
            reports.append(self._timed(step, number))
            phases.append(phases_of(stopwatch))
            if number == 0:
                watch.stop()
        records = RankRecord.of_this_rank(
            cpu=CpuTime.now().since(start), peak_bytes=watch.peak_bytes, phases=phases[settings.warmup_steps :]
        ).gathered()
        self.reporter.measurement(measurement(self.spec, self.peak, reports, records))

    def _timed(self, step: Step, number: int) -> StepReport:
        """One step from the moment all ranks are ready until the last one is done, which the loss waits for."""
        share = batch(
            self.spec.workload,
            vocab_size=self.spec.model.vocab_size,
            seed=self.spec.seed,
            step=number,
            replica=self.grid.replica,
            num_replicas=self.spec.layout.data_parallel_degree,
            device=self.device,
        )
        meet(self.device)
        start = time.perf_counter()
        loss = step(share, number=number)
        report = step_report(self.spec, self.peak, step=number, step_time_s=time.perf_counter() - start, loss=loss)
        self.reporter.step(report)
        return report
