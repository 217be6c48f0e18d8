"""Challenged sweeps on a machine of which the test says how fast each layout is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import Precision, Recompute
from autotuner.core.comparison import Challenge, RunGroup, SequentialTest
from autotuner.core.convergence_gate import GateOutcome, GateResult
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.space import default_space
from autotuner.core.sweep import Budget, RunTrial, SweepRequest
from autotuner.core.trial import FailureKind, Trial, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.runs.instructions import Finish, RunGate
from autotuner.runs.sweep_run import SweepMachine
from tests.builders import cpu_layout, failure, measurement, sweep_request, trial
from tests.fake_launcher import plain_measurement

INCUMBENT = cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=2)
OUTSIDE = replace(INCUMBENT, micro_batch_size=1, recompute=Recompute.FULL, fused_norm=False)  # of the searched space
TEST = SequentialTest(max_runs=12)
RUN_S = 10.0

Speed = Callable[[Layout], float | FailureKind]


def even(layout: Layout) -> float:
    del layout
    return 1000.0


def faster_than_incumbent(layout: Layout, incumbent: Layout = INCUMBENT) -> float:
    """Everything else reaches a fifth more."""
    return 1000.0 if layout == incumbent else 1200.0


def a_fifth_slower_incumbent(spec: TrialSpec) -> Measurement:
    """What a fake launcher measures of every layout; no two runs take equally long."""
    number = int(spec.trial_id.split("-")[2])
    return plain_measurement(spec, step_time_s=(1.2 if spec.layout == INCUMBENT else 1.0) * (1 + number % 3 / 1000))


def night(*rates: float, at: float = 0.0) -> RunGroup:
    return RunGroup(rates=rates, mfu=0.25, at=at, environment={"torch": "2.13.0"})


def nights(rate: float, num: int = 4) -> tuple[RunGroup, ...]:
    """What the incumbent reached before, close to a rate."""
    return tuple(night(rate * 1.003, rate * 0.998, rate * 0.999, at=float(n)) for n in range(num))


def bf16_and_fp8_request(**changes: Any) -> SweepRequest:
    """A sweep over bf16 and fp8 on eight GPUs."""
    cluster = load_cluster("h100:8")
    job = Job(model=load_model("llama-3-8b"), cluster=cluster, workload=Workload(seq_len=4096, global_batch_size=64))
    space = default_space(job).with_axes(
        precision=(Precision.BF16, Precision.FP8),
        compiled=(True,),
        tensor_parallel_degree=(1, 2),
        pipeline_parallel_degree=(1,),
        recompute=(Recompute.FULL,),
        micro_batch_size=(1,),
    )
    return replace(SweepRequest(job=job, space=space), **changes)


def challenge(**changes: object) -> Challenge:
    value = Challenge(incumbent=INCUMBENT, baseline=nights(1000.0), test=TEST)
    return replace(value, **changes)  # type: ignore[arg-type]  # the fields are the caller's business


def challenged(of: Challenge, **changes: object) -> SweepRequest:
    budget = Budget(num_trials=4, min_gain=0, prune_below=0.5)
    return sweep_request(**{"budget": budget, "challenge": of, **changes})


class Machine:
    """Runs what a plan orders, one trial at a time, with a little noise that a seed decides.

    Attributes:
        trials: Those that ended, in order.
        now: Passes by the length of each run.
    """

    def __init__(self, speed: Speed = even, *, noise: float = 0.003, gates: GateOutcome = GateOutcome.PASSED) -> None:
        self._speed = speed
        self._noise = noise
        self._gates = gates
        self.trials: list[Trial] = []
        self.now = 0.0

    def plan(self, request: SweepRequest) -> SweepMachine:
        return SweepMachine(request, self.trials, started_at=0.0)

    def run(self, request: SweepRequest, plan: SweepMachine | None = None, *, at_most: int = 1000) -> Finish | None:
        """Obey a plan until it finishes, or for so many trials."""
        plan = plan or self.plan(request)
        for _ in range(at_most):
            while isinstance(order := plan.decide(self.now), RunGate):
                self._gate(plan, order)
            if isinstance(order, Finish):
                return order
            assert isinstance(order, RunTrial), order
            self.obey(plan, order)
        return None

    def obey(self, plan: SweepMachine, order: RunTrial) -> Trial:
        plan.placed(running := self._trial(order, state=TrialState.RUNNING, finished_at=None))
        self.now += RUN_S
        ended = replace(running, **self._outcome(order), finished_at=self.now)
        self.trials.append(ended)
        plan.finished(ended)
        return ended

    def interrupted(self, order: RunTrial) -> Trial:
        return self._trial(order, state=TrialState.QUEUED, started_at=None, finished_at=None)

    def _trial(self, order: RunTrial, **changes: object) -> Trial:
        began = {"prediction": order.prediction, "attempts": 1, "started_at": self.now, "repeats": order.repeats}
        return trial(order.layout, order.number, **began | changes)

    def _outcome(self, order: RunTrial) -> dict[str, Any]:
        rate = self._speed(order.layout)
        if isinstance(rate, FailureKind):
            return {"state": TrialState.FAILED, "failure": failure(rate)}
        return {"state": TrialState.COMPLETE, "measurement": self._measurement(order.number, rate)}

    def _measurement(self, number: int, rate: float) -> Measurement:
        rate *= math.exp(random.Random(number).gauss(0, self._noise))
        return measurement(step_time_s=512 / rate, tokens_per_s=rate, mfu=rate / 4000, peak_bytes=(1,))

    def _gate(self, plan: SweepMachine, order: RunGate) -> None:
        plan.gate_started(order.trial, self.now)
        result = GateResult(outcome=self._gates, detail="as said", reference=order.reference, tolerance=0.02)
        gated = replace(order.trial, gate=result)
        self.trials[gated.number] = gated
        plan.gate_ended(gated)


def layouts(trials: Sequence[Trial]) -> list[Layout]:
    return [trial.layout for trial in trials]
