"""The random behaviour of a simulated trial, from a seed: its step times, its memory and its failures."""

from __future__ import annotations

import hashlib
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.measurement import Measurement, PhaseTimes, RobustMeasurement, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import Prediction
from autotuner.core.stack import Stack
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.value import NonNegative, Positive, Seconds, Share, value
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.costmodel.scenarios import step_times_under
from autotuner.costmodel.uncertainty import MEMORY_DEVIATION, RESIDUAL

# Seeded random numbers: the same seed and question give the same number, in any order of questions.

_STANDARD = NormalDist()


def run_of(spec: TrialSpec) -> str:
    """Return a name for this run that is unique within the sweep. It seeds the random draws, so that runs differ."""
    return str(spec.run) if not spec.repeat else f"{spec.run} of trial {spec.repeat}"


class Luck:
    """The source of random numbers for a simulated trial.

    Equal seeds, layouts, models and workloads give equal numbers. Each method takes a ``question``, a text that names
    the quantity to draw; each question has its own number.
    """

    def __init__(self, spec: TrialSpec, seed: int) -> None:
        layout = f"{_numbers(spec.model)} {spec.layout} {_numbers_of_batch(spec.workload)}"
        self._key = f"{seed} {spec.seed} {layout}"
        self._of_layout = f"{seed} 0 {layout}"

    def of_layout(self, question: str) -> float:
        """Return a standard normal number for a question that is the same in all sweeps with this layout.

        It does not depend on the seed of the trial.
        """
        return _normal(_number(f"{question} {self._of_layout}"))

    def share(self, question: str) -> float:
        """Return a number for a question that is uniformly distributed between 0 and 1, both excluded, over layouts."""
        return _share(self._number(question))

    def deviation(self, question: str) -> float:
        """Return a number for a question that is drawn from the standard normal distribution."""
        return _normal(self._number(question))

    def series(self, question: str) -> random.Random:
        """Return a random generator for a question, from which the caller can draw any number of values."""
        return random.Random(self._number(question))

    def _number(self, question: str) -> int:
        return _number(f"{question} {self._key}")


def _numbers(model: TransformerSpec) -> str:
    """Return the numbers that identify a model; random draws depend on them, and not on names or later fields."""
    width = f"{model.hidden_size} {model.num_heads} {model.num_kv_heads} {model.head_dim} {model.ffn_size}"
    parameters = f"{model.num_parameters} {model.num_active_parameters}"
    return f"{model.num_layers} {width} {model.vocab_size} {parameters}"


def _numbers_of_batch(workload: Workload) -> str:
    """Return the numbers that identify a workload."""
    tokens = f"{workload.seq_len} {workload.global_batch_size} {workload.tokens_per_step} {workload.keys_per_token}"
    return f"{tokens} {workload.optimizer_state_precision}"


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _share(number: int) -> float:
    return (number + 0.5) / 2**64


def _normal(number: int) -> float:
    return _STANDARD.inv_cdf(min(max(_share(number), 1e-12), 1.0 - 1e-12))


# Scenarios: how often simulated trials fail, how noisy they are, and how fast simulated time passes.


@value
class Scenario:
    """The behaviour of simulated trials: how much their times vary, how often they fail and how long they wait."""

    noise: NonNegative = RESIDUAL
    """Standard deviation of log(measured / predicted step time) between layouts."""
    run_noise: NonNegative = 0.003
    """Standard deviation of log(step time) between runs of one trial."""
    step_noise: NonNegative = 0.01
    """Standard deviation of log(step time) between steps of one run."""
    memory_noise: NonNegative = MEMORY_DEVIATION
    """Standard deviation of log(measured / predicted peak memory) between layouts."""
    crashes: Share = 0.0
    """Share of layouts whose ranks die before the first step, in every attempt."""
    hangs: Share = 0.0
    """Share of layouts whose first step never ends, in every attempt."""
    lost_nodes: Share = 0.0
    """Share of attempts that fail because their nodes are lost."""
    queue_s: Seconds = 0.0
    """Seconds that a job waits for its accelerators."""
    start_s: Seconds = 30.0
    """Seconds that ranks take to reach their first step."""
    speed: Positive = math.inf
    """Simulated seconds per real second."""


SCENARIOS: Mapping[str, Scenario] = {
    "plain": Scenario(),
    "flaky": Scenario(crashes=0.05, hangs=0.03, lost_nodes=0.1),
    "watched": Scenario(lost_nodes=0.05, queue_s=60.0, speed=20.0),
}
"""Scenarios by name, which is a queue of the simulated engine; a cluster that names no queue gets the first. The noise
between layouts is the cost model's own uncertainty (``costmodel.uncertainty``); the other values have the magnitude
that trials on GPUs showed."""


# The cost of a simulated layout: the cost model's answer, with an error as large as its own interval.


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The true step time and memory use of a simulated run. A perfect measurement would find these values."""

    prediction: Prediction
    step_time_s: float
    """Median step time of the layout."""
    peak_bytes: float
    """Peak bytes of the fullest rank, including memory that no allocator sees."""
    faulty_steps_s: tuple[float, ...] = ()
    """Duration of each step under the trial's fault trace."""

    def step(
        self, spec: TrialSpec, step: int, time_s: float, loss: float, *, is_under_trace: bool = False
    ) -> StepReport:
        """Return the report of one simulated step.

        Args:
            spec: The trial.
            step: Number of the step.
            time_s: Time of the step in seconds.
            loss: Loss of the step.
            is_under_trace: True if the trial replays a trace of link faults in this step.
        """
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
        """Return the measurement of a simulated trial, marked as simulated, with the memory of the fullest rank.

        Args:
            spec: The trial.
            times_s: Times of its measured steps.
            losses: Losses of all its steps.
            faulty_s: Times of the steps in which it replays a trace of link faults.
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
            environment={"simulated": "nothing ran: times of the cost model with random noise"},
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
        """Return the simulated step time by phase, divided as the prediction is."""
        parts = self.prediction.step_time
        longer = self.step_time_s / parts.total_s
        sync_s, optimizer_s = longer * parts.data_communication_s, longer * parts.optimizer_s
        rest_s = self.step_time_s - sync_s - optimizer_s
        return PhaseTimes(forward_backward_s=rest_s, gradient_sync_s=sync_s, optimizer_s=optimizer_s)

    def _peak_flop_per_s(self, spec: TrialSpec) -> float:
        """Return the peak FLOP/s of all ranks: the trial's reference, else the peak behind the prediction's MFU."""
        if spec.reference_flop_per_s is not None:
            return spec.reference_flop_per_s * spec.layout.world_size
        return self._model_flop(spec) / (self.prediction.step_time.total_s * self.prediction.mfu)

    @staticmethod
    def _model_flop(spec: TrialSpec) -> float:
        return spec.model.model_flop_per_step(spec.workload)


def truth_of(spec: TrialSpec, cluster: Cluster, scenario: Scenario, luck: Luck) -> Truth:
    """Return the true step time and memory use of a run: the prediction, changed by random errors of the scenario."""
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
