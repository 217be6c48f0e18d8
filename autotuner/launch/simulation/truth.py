"""What a simulated layout takes: the cost model's answer, off by as much as it says it may be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement, PhaseTimes, RobustMeasurement, StepReport
from autotuner.core.prediction import Prediction
from autotuner.core.stack import Stack
from autotuner.core.trial_spec import TrialSpec
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import step_times_under
from autotuner.launch.simulation.luck import Luck, run_of
from autotuner.launch.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a run of a layout takes, as if it were measured.

    Attributes:
        step_time_s: Median of its steps.
        peak_bytes: Of the fullest rank, with what no allocator sees.
        faulty_steps_s: What each step takes under the trial's fault trace.
    """

    prediction: Prediction
    step_time_s: float
    peak_bytes: float
    faulty_steps_s: tuple[float, ...] = ()

    def step(
        self, spec: TrialSpec, step: int, time_s: float, loss: float, *, is_under_trace: bool = False
    ) -> StepReport:
        """One step's report."""
        return StepReport(
            step=step,
            is_under_trace=is_under_trace,
            is_warmup=step < spec.settings.warmup_steps,
            step_time_s=time_s,
            loss=loss,
            tokens_per_s=spec.workload.tokens_per_step / time_s,
            mfu=self._model_flop(spec) / (time_s * self._peak_flop_per_s(spec)),
        )

    def measurement(
        self, spec: TrialSpec, times_s: Sequence[float], losses: Sequence[float], faulty_s: Sequence[float] = ()
    ) -> Measurement:
        """What the trial would have reported, marked as simulated; of one rank's memory, the fullest.

        Args:
            spec: The trial.
            times_s: Of its measured steps.
            losses: Of all steps.
            faulty_s: Of the steps under its fault trace.
        """
        ordered, quarter = sorted(times_s), len(times_s) // 4
        middle_s = statistics.median(ordered)
        mfu = self._model_flop(spec) / (middle_s * self._peak_flop_per_s(spec))
        precision = spec.precision_flop_per_s
        return Measurement(
            step_time_s=middle_s,
            step_time_spread_s=ordered[-1 - quarter] - ordered[quarter],
            num_steps=len(times_s),
            num_warmup_steps=spec.settings.warmup_steps,
            tokens_per_s=spec.workload.tokens_per_step / middle_s,
            model_flop_per_s=self._model_flop(spec) / middle_s,
            mfu=mfu,
            hfu=mfu * self.prediction.hfu / self.prediction.mfu,
            peak_flop_per_s=self._peak_flop_per_s(spec),
            precision_flop_per_s=precision and precision * spec.layout.world_size,
            peak_source="simulated",
            peak_bytes=(round(self.peak_bytes - self.prediction.memory.allowance_bytes),),
            losses=tuple(losses),
            foreign_cpu_share=0.0,
            phases=self._phases(),
            environment={"simulated": "nothing ran: times of the cost model, with seeded noise"},
            is_simulated=True,
            robust=self._robust(spec, faulty_s),
        )

    def _robust(self, spec: TrialSpec, faulty_s: Sequence[float]) -> RobustMeasurement | None:
        if spec.fault_trace is None:
            return None
        return RobustMeasurement.of(
            spec.fault_trace,
            faulty_s,
            model_flop=self._model_flop(spec),
            peak_flop_per_s=self._peak_flop_per_s(spec),
            tokens=spec.workload.tokens_per_step,
        )

    def _phases(self) -> PhaseTimes:
        """The step by phase, in the shares that are predicted."""
        parts = self.prediction.step_time
        longer = self.step_time_s / parts.total_s
        sync_s, optimizer_s = longer * parts.data_communication_s, longer * parts.optimizer_s
        rest_s = self.step_time_s - sync_s - optimizer_s
        return PhaseTimes(forward_backward_s=rest_s, gradient_sync_s=sync_s, optimizer_s=optimizer_s)

    def _peak_flop_per_s(self, spec: TrialSpec) -> float:
        """Of all ranks: what the trial was told, else what the prediction's MFU is a share of."""
        if spec.reference_flop_per_s is not None:
            return spec.reference_flop_per_s * spec.layout.world_size
        return self._model_flop(spec) / (self.prediction.step_time.total_s * self.prediction.mfu)

    @staticmethod
    def _model_flop(spec: TrialSpec) -> float:
        return spec.model.model_flop_per_step(spec.workload)


def truth_of(spec: TrialSpec, cluster: Cluster, scenario: Scenario, luck: Luck) -> Truth:
    """What this run of the trial's layout takes."""
    job = Job(model=spec.model, cluster=cluster, workload=spec.workload, stack=spec.stack or Stack())
    prediction = predict_one(spec.layout, job)
    of_layout = scenario.noise * luck.of_layout("step time")
    of_run = scenario.run_noise * luck.deviation(f"run {run_of(spec)}")
    of_memory = scenario.memory_noise * luck.of_layout("memory")
    off, trace = math.exp(of_layout + of_run), spec.fault_trace
    return Truth(
        prediction=prediction,
        step_time_s=prediction.step_time.total_s * off,
        faulty_steps_s=tuple(off * one for one in step_times_under(spec.layout, job, trace)) if trace else (),
        peak_bytes=max(prediction.memory.total_bytes * math.exp(of_memory), prediction.memory.allowance_bytes + 1.0),
    )
