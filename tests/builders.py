"""Valid values of the core for tests; every builder takes the fields a test cares about as keywords."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from autotuner.core.accelerator import Accelerator
from autotuner.core.choices import AttentionKernel, CollectiveHierarchy, Precision, RankPlacement, Recompute
from autotuner.core.cluster import Cluster
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.link import Link, LinkPoint
from autotuner.core.measurement import Breakdown, Measurement, PhaseTimes, StepReport
from autotuner.core.model import TransformerSpec
from autotuner.core.prediction import FullSizeEstimate, Memory, Prediction, StepTime, TrialEstimate
from autotuner.core.profile import AttentionPoint, CollectivePoint, DeviceProfile, GemmPoint, Measurements, TrafficPoint
from autotuner.core.space import SearchSpace
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.timeline import RankSeconds, RankTimeline, StepTimeline
from autotuner.core.trial import EngineJob, ProxyTrial, Trial, TrialFailure, TrialState
from autotuner.core.trial import FailureKind as Kind
from autotuner.core.trial_spec import TrialSettings
from autotuner.core.workload import Workload
from autotuner.costmodel.profile_fit import fit_profile

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return a value that must be there."""
    assert value is not None
    return value


def trial(layout: Layout, number: int = 0, **changes: Any) -> Trial:
    """A complete trial without a measurement; changes make it another."""
    value = Trial(
        id=f"sw-test-{number:04d}",
        sweep_id="sw-test",
        number=number,
        state=TrialState.COMPLETE,
        layout=layout,
        prediction=prediction(),
    )
    return replace(value, **changes)


def tiny_model(**changes: Any) -> TransformerSpec:
    """Small enough to train on one core within milliseconds."""
    spec = TransformerSpec(
        name="tiny",
        num_layers=4,
        hidden_size=64,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        ffn_size=128,
        vocab_size=256,
    )
    return replace(spec, **changes)


def llama_70b(**changes: Any) -> TransformerSpec:
    spec = TransformerSpec(
        name="llama-3-70b",
        num_layers=80,
        hidden_size=8192,
        num_heads=64,
        num_kv_heads=8,
        head_dim=128,
        ffn_size=28672,
        vocab_size=128256,
    )
    return replace(spec, **changes)


def h100(**changes: Any) -> Accelerator:
    accelerator = Accelerator(
        name="h100-sxm",
        kind="cuda",
        memory_bytes=80 * 10**9,
        memory_bandwidth_bytes_per_s=3.35e12,
        fp32_flop_per_s=67e12,
        bf16_flop_per_s=989.4e12,
        fp8_flop_per_s=1978.9e12,
        peak_source="data sheet",
        power_w=700,
        attention_kernels=(AttentionKernel.MATH, AttentionKernel.EFFICIENT, AttentionKernel.FLASH),
    )
    return replace(accelerator, **changes)


def h100_cluster(num_nodes: int = 8, **changes: Any) -> Cluster:
    cluster = Cluster(
        name=f"h100:{8 * num_nodes}",
        accelerator=h100(),
        num_nodes=num_nodes,
        accelerators_per_node=8,
        intra_node_link=Link(name="nvlink4", bandwidth_bytes_per_s=450e9, latency_s=2e-6),
        inter_node_link=Link(name="ndr400", bandwidth_bytes_per_s=50e9, latency_s=5e-6),
    )
    return replace(cluster, **changes)


def minds_nodes(layout: Layout) -> bool:
    """Whether a layout means something else on several nodes: a host plays two of them for its ranks."""
    is_cyclic = layout.rank_placement != RankPlacement.BLOCK
    return is_cyclic or layout.collective_hierarchy != CollectiveHierarchy.FLAT


def cpu_core() -> Accelerator:
    return Accelerator(
        name="cpu",
        kind="cpu",
        memory_bytes=4 * 10**9,
        memory_bandwidth_bytes_per_s=10e9,
        fp32_flop_per_s=100e9,
        bf16_flop_per_s=200e9,
        fp8_flop_per_s=0.0,
        peak_source="measured",
        power_w=0.0,
        attention_kernels=(AttentionKernel.MATH, AttentionKernel.FLASH),
    )


def cpu_cluster(num_cores: int = 2, **changes: Any) -> Cluster:
    """Cores of one machine, one rank each."""
    loopback = Link(name="loopback", bandwidth_bytes_per_s=1e9, latency_s=1e-4)
    cluster = Cluster(
        name=f"cpu:{num_cores}",
        accelerator=cpu_core(),
        num_nodes=1,
        accelerators_per_node=num_cores,
        intra_node_link=loopback,
        inter_node_link=loopback,
    )
    return replace(cluster, **changes)


def cpu_layout(**changes: Any) -> Layout:
    return replace(Layout(precision=Precision.FP32, attention_kernel=AttentionKernel.MATH), **changes)


def tiny_job(num_cores: int = 2, **changes: Any) -> Job:
    job = Job(model=tiny_model(), cluster=cpu_cluster(num_cores), workload=Workload(seq_len=64, global_batch_size=8))
    return replace(job, **changes)


def big_job(num_nodes: int = 8) -> Job:
    return Job(
        model=llama_70b(),
        cluster=h100_cluster(num_nodes),
        workload=Workload(seq_len=8192, global_batch_size=1024),
    )


def tiny_space(**changes: Any) -> SearchSpace:
    """What a trial can run on CPU cores."""
    space = SearchSpace(
        precision=(Precision.FP32,),
        attention_kernel=(AttentionKernel.MATH,),
        recompute=(Recompute.NONE, Recompute.FULL),
    )
    return space.with_axes(**changes)


def sweep_request(**changes: Any) -> SweepRequest:
    request = SweepRequest(
        job=tiny_job(), space=tiny_space(), budget=Budget(num_trials=4, min_gain=0), trial=TrialSettings()
    )
    return replace(request, **changes)


def step_time(matrix_s: float = 1.0) -> StepTime:
    return StepTime(
        matrix_s=matrix_s,
        attention_s=0.0,
        pointwise_s=0.0,
        host_s=0.0,
        recompute_s=0.0,
        offload_s=0.0,
        tensor_communication_s=0.1,
        context_communication_s=0.0,
        expert_communication_s=0.0,
        pipeline_communication_s=0.0,
        data_communication_s=0.2,
        bubble_s=0.05,
        optimizer_s=0.01,
    )


def memory(activations_bytes: float = 1e6) -> Memory:
    return Memory(
        parameters_bytes=1e6,
        gradients_bytes=1e6,
        optimizer_bytes=2e6,
        activations_bytes=activations_bytes,
        logits_bytes=1e5,
        buffers_bytes=0.0,
        allowance_bytes=1e5,
        worst_rank=0,
    )


def prediction(**changes: Any) -> Prediction:
    value: Prediction = Prediction(
        step_time=step_time(),
        memory=memory(),
        tokens_per_s=376.0,
        mfu=0.4,
        hfu=0.4,
        fits=True,
        fit_probability=1.0,
        relative_error=0.1,
        validated=False,
        never_compared=(),
        precision_utilization=0.4,
    )
    return replace(value, **changes)


def breakdown(**parts: float) -> Breakdown:
    """Of rank 0; parts that are not said take no time."""
    nothing = {field.name: 0.0 for field in fields(Breakdown) if field.name != "rank"}
    return Breakdown(rank=0, **nothing | parts)


def step_timeline() -> StepTimeline:
    """Two stages and three micro-batches, all of them shown; every forward takes 50 ms, every backward 100."""
    lanes = ((0, "0F0 0F1 0B0 0F2 0B1 0B2 sync optimizer", 0.0), (1, "1F0 1B0 1F1 1B1 1F2 1B2 sync optimizer", 0.05))
    took_s = {"F": 0.05, "B": 0.1, "s": 0.02, "o": 0.01}
    ranks = []
    for rank, words, start_s in lanes:
        actions, ends_s = tuple(words.split()), [start_s]
        for word in actions:
            ends_s.append(round(ends_s[-1] + took_s[word[1] if word[1] in took_s else word[0]], 6))
        seconds = RankSeconds(
            forward_s=0.15, backward_s=0.3, sync_s=0.02, optimizer_s=0.01, idle_s=round(0.6 - 0.48, 6)
        )
        lane = RankTimeline(
            rank=rank,
            pipeline_rank=rank,
            actions=actions,
            start_s=tuple(ends_s[:-1]),
            end_s=tuple(ends_s[1:]),
            seconds=seconds,
        )
        ranks.append(lane)
    return StepTimeline(step_s=0.6, num_micro_batches=3, num_ranks=2, ranks=tuple(ranks))


def measurement(**changes: Any) -> Measurement:
    value = Measurement(
        step_time_s=0.5,
        step_time_spread_s=0.01,
        num_steps=5,
        tokens_per_s=1024.0,
        model_flop_per_s=50e9,
        mfu=0.25,
        hfu=0.25,
        peak_flop_per_s=200e9,
        peak_source="measured GEMM rate of 2 cores",
        peak_bytes=(10_000_000, 9_000_000),
        phases=PhaseTimes(forward_backward_s=0.4, gradient_sync_s=0.05, optimizer_s=0.05),
        losses=(5.5, 5.4, 5.3),
        foreign_cpu_share=0.02,
        environment={"torch": "2.13.0"},
    )
    return replace(value, **changes)


def failure(kind: Kind = Kind.OOM, **changes: Any) -> TrialFailure:
    return replace(TrialFailure(kind=kind, message="rank 1 ran out of memory", rank=1, log_tail="..."), **changes)


def engine_job(name: str = "atrial-0-1", **changes: Any) -> EngineJob:
    return replace(EngineJob(engine="two", name=name, handle="17", submitted_at=1.0), **changes)


def step_report(step: int = 0, **changes: Any) -> StepReport:
    value = StepReport(step=step, is_warmup=False, step_time_s=0.5, loss=5.5, tokens_per_s=1024.0, mfu=0.25)
    return replace(value, **changes)


def measurements(**changes: Any) -> Measurements:
    """Two cores that multiply at 80 and 160 GFLOP/s, with a message of 1 MB in 1 ms."""
    value = Measurements(
        launch_s=3e-6,
        gemm=(
            GemmPoint(precision=Precision.FP32, m=1000, n=1000, k=1000, seconds=2e9 / 80e9),
            GemmPoint(precision=Precision.BF16, m=1000, n=1000, k=1000, seconds=2e9 / 160e9),
        ),
        attention=(
            AttentionPoint(
                kernel=AttentionKernel.MATH,
                precision=Precision.FP32,
                batch=1,
                num_heads=4,
                head_dim=50,
                seq_len=500,
                forward_s=10e-3,
                backward_s=20e-3,
            ),
        ),
        traffic=(TrafficPoint(operation="copy", num_bytes=2 * 10**8, seconds=0.01),),
        collectives=(
            CollectivePoint(kind="all_gather", num_ranks=2, num_bytes=2000, seconds=1e-4),
            CollectivePoint(kind="all_gather", num_ranks=2, num_bytes=2_002_000, seconds=1.1e-3),
        ),
        environment={"torch": "2.13.0", "device": "a core", "host": "0123456789ab"},
    )
    return replace(value, **changes)


def profile(name: str = "local", *, measured_at: float = 1.0) -> DeviceProfile:
    """Two cores, whose collectives are computed from the constants of their link."""
    fitted = fit_profile(measurements(), name=name, measured_at=measured_at, num_ranks=2, accelerator=cpu_core())
    return replace(fitted, collectives=())


def link_point(
    low: int, high: int, *, delay: float = 50e-6, jitter: float = 2e-6, forth: float = 1e9, back: float = 1e9
) -> LinkPoint:
    return LinkPoint(ends=(low, high), delay_s=delay, jitter_s=jitter, forth_bytes_per_s=forth, back_bytes_per_s=back)


def pair_measurements() -> Measurements:
    """Two nodes of two cores, whose network has half the bandwidth and twice the latency of the links inside."""
    across = (
        CollectivePoint(kind="all_gather", num_ranks=2, num_bytes=2000, seconds=2e-4, num_nodes=2),
        CollectivePoint(kind="all_gather", num_ranks=2, num_bytes=2_002_000, seconds=2.2e-3, num_nodes=2),
        CollectivePoint(kind="all_gather", num_ranks=4, num_bytes=2000, seconds=8e-4, num_nodes=2),
        CollectivePoint(kind="all_gather", num_ranks=4, num_bytes=2_002_000, seconds=4.8e-3, num_nodes=2),
    )
    return measurements(collectives=(*measurements().collectives, *across))


def queued_trial(sweep_id: str = "sw-test", **changes: Any) -> Trial:
    """The first trial of a sweep, which nobody has started."""
    fresh = trial(cpu_layout(), id=f"{sweep_id}-0000", sweep_id=sweep_id, state=TrialState.QUEUED)
    return replace(fresh, **changes)


def proxy_trial(**changes: Any) -> ProxyTrial:
    """Two ranks that stand for four of two tensor ranks each."""
    value = ProxyTrial(
        layout=cpu_layout(tensor_parallel_degree=2),
        num_layers=4,
        global_batch_size=2,
        measured_parts=("matrix_s", "tensor_communication_s"),
    )
    return replace(value, **changes)


def estimate(step_time_s: float = 0.625, mfu: float = 0.1875) -> TrialEstimate:
    """From two of eight ranks."""
    full_size = FullSizeEstimate(
        step_time_s=step_time_s,
        relative_error=0.125,
        peak_bytes=12e6,
        fit_probability=0.875,
        num_proxy_trials=1,
        measured_parts=("matrix_s", "tensor_communication_s"),
        modelled_parts=("data_communication_s", "bubble_s", "optimizer_s"),
        measured_share=0.75,
    )
    return TrialEstimate(full_size=full_size, tokens_per_s=819.2, mfu=mfu, num_trial_ranks=2, num_ranks=8)
