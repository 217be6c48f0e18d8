"""Stores for the pages: large sweeps, judged trials, sweeps on slow links, and layouts in use."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import update

from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, P2PTransport, PipelineSchedule, Precision
from autotuner.core.cluster import SIMULATED
from autotuner.core.comparison import ChallengeFindings, Comparison, Decision, EnvironmentChange, RunGroup
from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.job import Job
from autotuner.core.layout import RANK_DEGREES, Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import Breakdown, LinkEvent, LinkEventKind, Measurement, PhaseTimes, RobustMeasurement
from autotuner.core.objective import Metric, Objective, Weight
from autotuner.core.run import Run, RunState, StopReason
from autotuner.core.space import default_trial_space
from autotuner.core.study import OptimizerTrial, StudyBudget, TargetReached
from autotuner.core.sweep import Budget, ExpectedImprovement, RunTrial, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Outcome, Trial, TrialFailure
from autotuner.core.trial_spec import OptimizerName, TrialSpec
from autotuner.core.upkeep import (
    Baseline,
    GateRun,
    GateRunRequest,
    RegressionGateOutcome,
    RegressionGateRequest,
    RegressionGateResult,
    RetuneOutcome,
    RetuneRequest,
    RetuneRun,
    StepChange,
    Trigger,
    Verdict,
)
from autotuner.core.workload import Workload
from autotuner.costmodel.resource_cost import resource_cost_of
from autotuner.costmodel.scenarios import predicted_under
from autotuner.search.predicted_ranking import PredictedLayout, best_predicted
from autotuner.search.upkeep.cron import DueRun
from autotuner.store.engine import writing
from autotuner.store.tables import runs as queue
from tests.api.service import NOW, StoreDriver, gate_result
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    measurement,
    prediction,
    step_report,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.contracts.acts import finish_sweep
from tests.fake_launcher import plain_measurement
from tests.runs import claimed, end, end_gate, end_retune, lease_of
from tests.slow_links import stepped
from tests.studies import candidate, study_request, study_trial

# ---------------------------------------------------------------- large
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
            if isinstance(outcome, Measurement) and objective.reads_resource_cost:
                outcome = _with_resource_cost(trial, outcome)
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
        expected_improvement=_expected_improvement(num_trials),
    )


def _expected_improvement(number: int) -> ExpectedImprovement:
    """What the search expects before that trial: less and less, and nothing is known before the first."""
    gain = 0.15 / number if number else None
    return ExpectedImprovement(num_candidates=36_417, num_fitting=802, expected_gain=gain)


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
            expected_improvement=_expected_improvement(number),
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


def _with_resource_cost(trial: Trial, measured: Measurement) -> Measurement:
    """The measurement with its resource cost; the clocks of a node, and so its draw, are never those of another."""
    drawn_w = 480.0 + 200.0 * random.Random(trial.number).random()
    return replace(
        measured, resource_cost=resource_cost_of(trial.layout, LARGE_JOB, trial.prediction, measured, drawn_w)
    )


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


# ---------------------------------------------------------------- judged
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
    gate = gate_result(
        outcome=GateOutcome.PASSED,
        detail=f"after {_STEPS} steps the candidate's loss differs by +0.31 ± 0.24 % from the loss of the reference "
        "tp2: within the tolerance of 2 %",
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


# ---------------------------------------------------------------- slow
TRACE = FaultTrace.parse("6;2_3;0.06\n16;0_1;dead\n22;2_3;0\n26;0_1;0", num_steps=32)

_SCHEDULES = (PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ADAPTIVE)

_HEALTHY = 8
"""Steps before the trace."""


def slow_sweep(driver: StoreDriver, *, has_trace: bool = True) -> Sweep:
    """A finished sweep of three pipelines; without a trace, its cluster has a slow link itself."""
    cluster = cpu_cluster(4, name="cpu:4")
    if not has_trace:
        links = (LinkHealth(ends=(2, 3), delay_s=0.06), LinkHealth(ends=(0, 1), bandwidth_bytes_per_s=25e6))
        cluster = replace(cluster, link_health=links)
    job = tiny_job(
        4,
        model=tiny_model(num_layers=8, hidden_size=256, num_heads=4, num_kv_heads=4, head_dim=64, ffn_size=1024),
        cluster=cluster,
        workload=Workload(seq_len=256, global_batch_size=12),
    )
    trace = TRACE if has_trace else None
    objective = Objective(under_faults=has_trace)
    request = sweep_request(job=job, fault_trace=trace, objective=objective, name="links that fail")
    sweep = driver.sweep(request)
    for number, schedule in enumerate(_SCHEDULES):
        _ran(driver, sweep, number, _layout(schedule, has_trace=has_trace))
    return finish_sweep(
        driver.store,
        sweep.id,
        owner=driver.owner,
        now=NOW + 900,
        state=RunState.COMPLETE,
        reason=StopReason.TRIAL_BUDGET,
        detail="3 of 3 trials ran",
    )


def _layout(schedule: PipelineSchedule, *, has_trace: bool) -> Layout:
    """A pipeline on all cores; under the trace, whose link dies, with delegates."""
    transport = P2PTransport.DELEGATED if has_trace else P2PTransport.INLINE
    return cpu_layout(pipeline_parallel_degree=4, pipeline_schedule=schedule, p2p_transport=transport)


def _ran(driver: StoreDriver, sweep: Sweep, number: int, layout: Layout) -> None:
    request = sweep.request
    queued = driver.store.add_trial(
        RunTrial(
            number=number,
            layout=layout,
            prediction=predicted_under(layout, request.job, request.fault_trace),
        ),
        lease=driver.lease(sweep.id),
    )
    trial = driver.store.start_trial(queued.id, lease=driver.lease(queued.id), now=NOW + 100 * number)
    for step, time_s in enumerate(_times_s(request.fault_trace)):
        report = step_report(
            step, step_time_s=time_s, is_warmup=step < 2, is_under_trace=step >= _HEALTHY, mfu=0.4 / time_s
        )
        driver.store.add_step(trial.id, report, lease=driver.lease(trial.id), now=NOW + 100 * number + step)
    driver.store.finish_trial(
        trial.id,
        _measured_on_slow_links(sweep, trial),
        lease=driver.lease(trial.id),
        now=NOW + 100 * number + 90,
    )


def _times_s(trace: FaultTrace | None) -> list[float]:
    """Of every step: two to warm up, healthy ones, and those under the trace."""
    healthy = [0.9, 0.83, *(0.79 + 0.002 * (step % 3) for step in range(_HEALTHY - 2))]
    if trace is None:
        return healthy
    late = {
        stretch.first_step + number: 1.4 if number < 2 else 0.86
        for stretch in trace.stretches()
        for number in range(stretch.num_steps)
        if stretch.links
    }
    return [*healthy, *(late.get(step, 0.79) for step in range(trace.num_steps))]


def _measured_on_slow_links(sweep: Sweep, trial: Trial) -> Measurement:
    trace = sweep.request.fault_trace
    timeline = stepped(0.0 if trace else 0.063, blocks_sends=trace is None, schedule=trial.layout.pipeline_schedule)
    step_s, mfu = 0.79 + 0.05 * trial.number, 0.4 - 0.02 * trial.number
    measured = measurement(step_time_s=step_s, step_time_spread_s=0.004, mfu=mfu, timeline=timeline)
    if trace is None:
        return measured
    robust = RobustMeasurement.of(
        trace,
        [time_s * (1 + 0.2 * (2 - trial.number)) for time_s in _times_s(trace)[_HEALTHY:]],
        model_flop=1e12,
        peak_flop_per_s=4e12,
        tokens=6144,
    )
    found = (
        LinkEvent(step=_HEALTHY + 7, kind=LinkEventKind.LINK_SLOW, stages=(2, 3), delay_s=0.06),
        LinkEvent(step=_HEALTHY + 8, kind=LinkEventKind.REPLANNED, warm_up=(10, 5, 3, 1), delegated=True, cost_s=0.02),
        LinkEvent(step=_HEALTHY + 16, kind=LinkEventKind.LINK_DEAD, stages=(0, 1)),
        LinkEvent(step=_HEALTHY + 23, kind=LinkEventKind.LINK_RECOVERED, stages=(2, 3)),
        LinkEvent(step=_HEALTHY + 24, kind=LinkEventKind.REPLANNED, warm_up=(7, 5, 3, 1)),
    )
    return replace(measured, robust=robust, link_events=found)


# ---------------------------------------------------------------- in use
DAY_S = 86400.0
INCUMBENT = cpu_layout(tensor_parallel_degree=2)
CHANGE = EnvironmentChange(name="OMP_NUM_THREADS", then="2", now="1")


def runs(rate: float, at: float = NOW, *, simulated: bool = False) -> RunGroup:
    environment = {"simulated": "nothing ran"} if simulated else {}
    return RunGroup(rates=(0.998 * rate, rate, 1.002 * rate), mfu=rate / 4000, at=at, environment=environment)


def compared(rate: float) -> Comparison:
    change = rate / 1000 - 1
    return Comparison(
        decision=Decision.SLOWER if change < -0.02 else Decision.NOT_SLOWER,
        change=change,
        low=change - 0.008,
        high=change + 0.008,
        noise=0.002,
        num_reference=9,
        num_candidate=3,
    )


def found(rate: float, *, simulated: bool = False) -> ChallengeFindings:
    measured = runs(rate, simulated=simulated)
    return ChallengeFindings(measured=INCUMBENT, runs=measured, against_baseline=compared(rate))


# ---------------------------------------------------------------- retunes
def retune(driver: StoreDriver, name: str = "nightly", **changes: Any) -> None:
    """One of every night at two, due now."""
    request = RetuneRequest(name=name, cron="0 2 * * *", template=sweep_request(), incumbent=INCUMBENT)
    driver.store.retunes.save(replace(request, **changes), now=NOW, next_due_at=NOW)


def started_run(driver: StoreDriver, name: str = "nightly", night: int = 0) -> RetuneRun:
    """The run of a night, whose sweep is queued."""
    due_at = NOW + night * DAY_S
    due = DueRun(expected_due_at=due_at, due_at=due_at, next_due_at=due_at + DAY_S, trigger=Trigger.CRON)
    run = driver.store.retunes.start_run(name, due, now=due_at, sweep=sweep_request())
    assert run is not None
    return run


def finished_run(
    driver: StoreDriver, verdict: Verdict, rate: float | None, detail: str, name: str = "nightly", night: int = 0
) -> RetuneRun:
    """A run that ended so."""
    run = started_run(driver, name, night)
    is_slower, is_better, step = verdict is Verdict.REGRESSION, verdict is Verdict.BETTER_FOUND, prediction().step_time
    outcome = RetuneOutcome(
        verdict=verdict,
        findings=None if rate is None else replace(found(rate), challenger=cpu_layout() if is_better else None),
        changes=(CHANGE,) if is_slower else (),
        why=StepChange(predicted_before=step, predicted_after=step, relative_error=0.1) if is_better else None,
    )
    _free(driver, run.id)
    ended = end_retune(driver.store, run, outcome, detail, now=run.request.due_at + 60)
    if not is_slower:
        driver.store.retunes.set_incumbent(name, INCUMBENT, (runs(1000.0),))
    return ended


def _free(driver: StoreDriver, run_id: str) -> None:
    """Have a run await nothing, though its sweep stays in the queue."""
    with writing(driver.store._engine) as connection:  # no method does that
        connection.execute(update(queue).where(queue.c.id == run_id).values(awaits=None))


# ---------------------------------------------------------------- Performance regression gates
def queued_gate(
    driver: StoreDriver, software: str = "pull request 7", held_to: Layout | None = None, **changes: Any
) -> GateRun:
    """A gate held to the baseline main, whose sweep is queued."""
    request = RegressionGateRequest(sweep=sweep_request(), layout=INCUMBENT, baseline="main", software=software)
    baseline = Baseline(
        name="main", key="k" * 64, layout=held_to or INCUMBENT, runs=(runs(1000.0),), gate_id="mg-0", at=NOW
    )
    asked = GateRunRequest(gate=replace(request, **changes), key="k" * 64, content=software, baseline=baseline)
    return driver.store.regression_gates.create(asked, by=sweep_request(), now=NOW)


def finished_gate(
    driver: StoreDriver, outcome: RegressionGateOutcome, rate: float, detail: str, **changes: Any
) -> GateRun:
    """A gate that ended so, and what it measured is the baseline from now on if it passed."""
    is_passed = outcome is RegressionGateOutcome.PASSED
    gate = queued_gate(driver, sets_baseline=is_passed, **changes)
    findings = found(rate, simulated=gate.request.gate.sweep.runs_on.engine == SIMULATED)
    result = RegressionGateResult(outcome=outcome, findings=findings, changes=() if is_passed else (CHANGE,))
    _free(driver, gate.id)
    return end_gate(driver.store, gate, result, detail, now=NOW + 60)
