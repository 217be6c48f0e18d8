"""Sweeps as large jobs have them, for pages to show: predictions of Llama 3 70B, and measurements made up of these.

Nothing of it was measured: each step time is the prediction's, off by what trials of such sweeps are off, from a seed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Precision
from autotuner.core.job import Job
from autotuner.core.layout import RANK_DEGREES
from autotuner.core.measurement import Breakdown, Measurement, PhaseTimes
from autotuner.core.objective import Objective
from autotuner.core.run import RunState, StopReason
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import Budget, Prospects, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Outcome, Trial, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.resource_cost import footprint_of
from autotuner.search.ranking import PredictedLayout, best_predicted
from autotuner.search.sweeps.instructions import RunTrial
from tests.api.service import NOW, StoreDriver
from tests.builders import step_report
from tests.contracts.acts import finish_sweep
from tests.fake_launcher import plain_measurement

LARGE_JOB = Job(
    model=load_model("llama-3-70b"),
    cluster=load_cluster("h100:64"),
    workload=Workload(seq_len=8192, global_batch_size=1024),
)

_TRIAL_S = 300.0

_OUT_OF_MEMORY = 0.97
"""Share of the memory above which a trial here does not fit."""


def large_sweep(
    driver: StoreDriver,
    num_trials: int,
    *,
    name: str = "",
    num_running: int = 0,
    finished: bool = True,
    objective: Objective | None = None,
) -> Sweep:
    """A sweep of Llama 3 70B on 64 H100 with so many trials that ended, of which some failed, and some under way."""
    space, budget = _SPACE, Budget(num_trials=max(1, num_trials + num_running))
    objective = objective or Objective()
    sweep = driver.sweep(SweepRequest(job=LARGE_JOB, space=space, budget=budget, name=name, objective=objective))
    chance = random.Random(7)
    rows = _predicted(num_trials + num_running)
    for number, row in enumerate(rows):
        trial = _started(driver, sweep, number, row)
        if number < num_trials:
            now = _began(number) + 0.9 * _TRIAL_S
            outcome = _outcome(trial, chance)
            if isinstance(outcome, Measurement) and objective.reads_footprint:
                outcome = _with_footprint(trial, outcome)
            driver.store.finish_trial(trial.id, outcome, lease=driver.lease(trial.id), now=now)
    return _finished(driver, sweep, num_trials) if finished else sweep


def _began(number: int) -> float:
    return NOW + _TRIAL_S * number


def _finished(driver: StoreDriver, sweep: Sweep, num_trials: int) -> Sweep:
    return finish_sweep(
        driver.store,
        sweep.id,
        owner=driver.owner,
        now=_began(num_trials),
        state=RunState.COMPLETE if num_trials else RunState.FAILED,
        reason=StopReason.TRIAL_BUDGET,
        detail=f"{num_trials} of {num_trials} trials ran",
        prospects=_prospects(num_trials),
    )


def _prospects(number: int) -> Prospects:
    """What the search expects before that trial: less and less, and nothing is known before the first."""
    gain = 0.15 / number if number else None
    return Prospects(num_candidates=36_417, num_fitting=802, expected_gain=gain)


_SPACE = default_trial_space(LARGE_JOB).with_axes(
    precision=(Precision.BF16,),
    compiled=(False,),
    attention_kernel=(AttentionKernel.FLASH,),
    context_parallel_degree=(1, 2, 4),
)


@cache
def _predicted(num_rows: int) -> tuple[PredictedLayout, ...]:
    """So many good layouts, no more than a few of the same degrees, in an order that a search may take."""
    rows = best_predicted(LARGE_JOB, _SPACE, limit=max(1, 20 * num_rows)).rows if num_rows else ()
    most = max(2, num_rows // 12)
    alike: Counter[tuple[int, ...]] = Counter()
    kept: list[PredictedLayout] = []
    others: list[PredictedLayout] = []
    for row in rows:
        degrees = tuple(getattr(row.layout, name) for name in RANK_DEGREES)
        alike[degrees] += 1
        (kept if alike[degrees] <= most else others).append(row)
    random.Random(7).shuffle(chosen := [*kept, *others][:num_rows])
    return tuple(chosen)


def _started(driver: StoreDriver, sweep: Sweep, number: int, row: PredictedLayout) -> Trial:
    queued = driver.store.add_trial(
        RunTrial(
            number=number,
            layout=row.layout,
            prediction=row.prediction,
            prospects=_prospects(number),
        ),
        lease=driver.lease(sweep.id),
    )
    trial = driver.store.start_trial(queued.id, lease=driver.lease(queued.id), now=_began(number))
    for step in range(3):
        driver.store.add_step(
            trial.id,
            step_report(step, step_time_s=row.prediction.step_time.total_s, mfu=row.prediction.mfu),
            lease=driver.lease(trial.id),
            now=_began(number) + 10 * step,
        )
    return trial


def _outcome(trial: Trial, chance: random.Random) -> Outcome:
    predicted = trial.prediction
    peak_bytes = int(predicted.memory.total_bytes * chance.gauss(1.01, 0.02))
    limit_bytes = LARGE_JOB.cluster.accelerator.memory_bytes
    if peak_bytes > _OUT_OF_MEMORY * limit_bytes:
        message = f"rank 3 asked for 2.5 GB with {limit_bytes / 1e9:.1f} GB in use"
        log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.33 GiB"
        return TrialFailure(kind=FailureKind.OOM, message=message, rank=3, log_tail=log)
    if chance.random() < 0.02:
        message = "no step within 300 s: rank 43 waits in an NCCL connect"
        return TrialFailure(kind=FailureKind.TIMEOUT, message=message, rank=43, log_tail="NCCL WARN connect timed out")
    return _measured(trial, predicted.step_time.total_s * chance.gauss(0.99, 0.02), peak_bytes, chance)


def _measured(trial: Trial, step_time_s: float, peak_bytes: int, chance: random.Random) -> Measurement:
    spec = TrialSpec(
        trial_id=trial.id,
        model=LARGE_JOB.model,
        workload=LARGE_JOB.workload,
        layout=trial.layout,
        device="cuda",
        reference_flop_per_s=LARGE_JOB.cluster.accelerator.reference_flop_per_s,
    )
    breakdown = _breakdown(trial, step_time_s, chance)
    return replace(
        plain_measurement(spec, step_time_s=step_time_s),
        num_steps=12,
        step_time_spread_s=0.006 * step_time_s,
        step_time_interval_s=(0.004 + 0.004 * chance.random()) * step_time_s,
        peak_source="data sheet",
        peak_bytes=tuple(int(peak_bytes * (1 - 0.3 * rank / 64)) for rank in range(trial.layout.world_size)),
        losses=tuple(11.8 - 0.05 * step for step in range(14)),
        breakdown=breakdown,
        phases=PhaseTimes(
            forward_backward_s=0.97 * step_time_s, gradient_sync_s=0.02 * step_time_s, optimizer_s=0.01 * step_time_s
        ),
        environment={"torch": "2.13.0", "nccl": "2.29.3", "driver": "585.12", "device": "NVIDIA H100 80GB HBM3"},
    )


def _with_footprint(trial: Trial, measured: Measurement) -> Measurement:
    """The measurement with its footprint; the clocks of a node, and so its draw, are never those of another."""
    drawn_w = 480.0 + 200.0 * random.Random(trial.number).random()
    return replace(measured, footprint=footprint_of(trial.layout, LARGE_JOB, trial.prediction, measured, drawn_w))


def _breakdown(trial: Trial, step_time_s: float, chance: random.Random) -> Breakdown:
    """Parts of the measured step in about the proportion in which they were predicted."""
    parts = trial.prediction.step_time
    compute_s = parts.matrix_s + parts.attention_s + parts.pointwise_s + parts.host_s
    factor = step_time_s / parts.total_s
    forward_s = factor * compute_s / 3 * chance.gauss(1, 0.02)
    tensor_s = factor * parts.tensor_communication_s
    data_s = factor * parts.data_communication_s
    known_s = (
        forward_s
        + tensor_s
        + data_s
        + factor * (parts.pipeline_communication_s + parts.bubble_s + parts.optimizer_s + parts.context_communication_s)
    )
    other_s = 0.003 * step_time_s
    return Breakdown(
        rank=21,
        forward_s=forward_s,
        backward_s=step_time_s - known_s - other_s,
        all_reduce_s=0.0,
        all_gather_s=tensor_s / 2 + data_s / 2,
        reduce_scatter_s=tensor_s / 2 + data_s / 2,
        all_to_all_s=factor * parts.context_communication_s,
        send_receive_s=factor * parts.pipeline_communication_s,
        pipeline_idle_s=factor * parts.bubble_s,
        optimizer_s=factor * parts.optimizer_s,
        other_s=other_s,
    )
