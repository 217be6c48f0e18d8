"""A sweep of four cores whose links fail, for pages to show: a fault trace, robust figures, events.

Nothing of it was measured: times are predictions, late where a message is.
"""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.choices import P2PTransport, PipelineSchedule
from autotuner.core.fault_trace import FaultTrace
from autotuner.core.layout import Layout
from autotuner.core.link import LinkHealth
from autotuner.core.measurement import LinkEvent, LinkEventKind, Measurement, RobustMeasurement
from autotuner.core.objective import Objective
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.workload import Workload
from autotuner.costmodel.scenarios import predicted_under
from autotuner.search.sweeps.instructions import RunTrial
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_cluster, cpu_layout, measurement, step_report, sweep_request, tiny_job, tiny_model
from tests.contracts.acts import finish_sweep
from tests.slow_links import stepped

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
        _measured(sweep, trial),
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


def _measured(sweep: Sweep, trial: Trial) -> Measurement:
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
