"""What else pages show: sweeps with a front, a loss gate's curves, an optimizer study with many candidates.

Nothing of it was measured: values are the model's, and losses a formula's, off by a little from a seed.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from autotuner.core.choices import Precision
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.run import Run, RunState
from autotuner.core.study import OptimizerTrial, StudyBudget, TargetReached
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.trial_spec import OptimizerName
from autotuner.core.workload import Workload
from tests.api.service import NOW, StoreDriver, loss_gate_result
from tests.browser.large import large_sweep
from tests.builders import cpu_cluster, cpu_layout, tiny_job
from tests.runs import claimed, end, lease_of
from tests.studies import candidate, study_request, study_trial

FRONT = Objective(
    front=(Metric.MFU, Metric.TOKENS_PER_JOULE, Metric.SIMPLICITY),
    profile=(Weight(metric=Metric.MFU, weight=2.0), Weight(metric=Metric.TOKENS_PER_JOULE, weight=1.0)),
)
"""Speed, energy and simplicity, none of them traded for another; speed counts twice where one has to be named."""

_STEPS = 192


def sweep_with_front(driver: StoreDriver, num_trials: int, name: str = "speed, energy and simplicity") -> Sweep:
    """A sweep of Llama 3 70B that looked for its front."""
    return large_sweep(driver, num_trials, name=name, objective=FRONT)


def gated_trial(driver: StoreDriver) -> Trial:
    """A trial of low precision whose losses over three seeds passed."""
    sweep = driver.sweep()
    layout = cpu_layout(tensor_parallel_degree=2, precision=Precision.FP8_EMULATED)
    trial = driver.ended(sweep, 0, layout=layout)
    gate = loss_gate_result(
        outcome=GateOutcome.PASSED,
        detail=f"after {_STEPS} steps the loss is +0.31 ± 0.24 % from the reference's tp2, within 2 %",
        candidate_losses=tuple(_losses(seed, 0.01) for seed in range(3)),
        reference_losses=tuple(_losses(seed, 0.0) for seed in range(3)),
        target_loss=4.2,
        reference_steps=_STEPS,
    )
    return driver.gated(trial, gate)


def _losses(seed: int, above: float) -> tuple[float, ...]:
    chance = random.Random(seed)
    return tuple(4.0 + above + 5.0 * math.exp(-step / 40) + chance.gauss(0, 0.06) for step in range(_STEPS))


def tried_study(driver: StoreDriver, num_trials: int = 12) -> Run:
    """An optimizer study of so many candidates, of which some came to the target."""
    request = study_request(
        job=replace(tiny_job(), cluster=cpu_cluster(2), workload=Workload(seq_len=32, global_batch_size=16)),
        target_loss=4.5,
        budget=StudyBudget(num_trials=max(1, num_trials), max_samples=3200),
        name="AdamW or LAMB, and at which batch",
    )
    made, _ = driver.store.optimizer_studies.create(request, now=NOW)
    held = claimed(driver.store, "study", now=NOW)
    for number in range(num_trials):
        trial = replace(_tried(number), id=f"{made.id}-{number:04d}", study_id=made.id)
        driver.store.optimizer_studies.save_trial(trial, lease_of(held))
    end(driver.store, held, RunState.COMPLETE, f"{num_trials} candidates ran", now=NOW + 900)
    run: Run = driver.store.runs.get("study", made.id)
    return run


def _tried(number: int) -> OptimizerTrial:
    """The less a candidate trains at a time, the more steps it needs; every fourth learns too slowly."""
    chance = random.Random(number)
    batch, replicas = 16 << number % 3, 1 + number % 2
    pace = (9 if number % 4 == 3 else 28) / math.sqrt(16 / batch) ** 0.5
    step_s = 0.02 * batch / 16 / replicas**0.8
    losses = [4.2 + 1.4 * math.exp(-step / (1500 / pace)) + chance.gauss(0, 0.02) for step in range(3200 // batch)]
    rate = 1e-3 * 2.0 ** (number % 5 - 2)
    chosen = candidate(tuple(OptimizerName)[number % 3], batch=batch, replicas=replicas, learning_rate=rate)
    crossed = next((step for step, loss in enumerate(losses, 1) if loss <= 4.5), None)
    if crossed is None:
        return study_trial(number, *losses, step_time_s=step_s, candidate=chosen, world_size=replicas)
    time_s = crossed * step_s
    reached = TargetReached(
        num_steps=crossed,
        num_samples=crossed * batch,
        step_time_s=step_s,
        time_s=time_s,
        accelerator_hours=time_s * replicas / 3600,
    )
    kept = losses[:crossed]
    return study_trial(number, *kept, step_time_s=step_s, candidate=chosen, world_size=replicas, reached=reached)
