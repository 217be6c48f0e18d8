"""The trial of a check: a small decoder on all ranks of the nodes, so that it needs whatever a real one needs."""

from __future__ import annotations

from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Precision, ShardLevel
from autotuner.core.cluster_check import ClusterCheck
from autotuner.core.layout import Layout
from autotuner.core.trial import EngineJob
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.workload import Workload

_MODEL = "llama-demo"
_SEQ_LEN = 256

_FULL = TrialSettings(
    measured_steps=20, max_measured_steps=200, measuring_budget_s=30.0, profiled_steps=0, max_repeats=0, timeout_s=180.0
)
"""About a minute with torch's import on nodes that have not imported it yet."""

_QUICK = TrialSettings(
    warmup_steps=1,
    max_warmup_steps=1,
    measured_steps=3,
    max_measured_steps=3,
    profiled_steps=0,
    max_repeats=0,
    timeout_s=120.0,
)

_BENCHMARK_S = 900.0
"""What products, attention, memory and collectives may take: two minutes on a good network, long on a slow one."""


def small_trial(check_id: str, check: ClusterCheck, jobs: tuple[EngineJob, ...]) -> TrialSpec:
    """One sequence on every rank, and parameters sharded over all of them: each step gathers and scatters across nodes.

    A core measures its own rate; a GPU's data sheet says it.
    """
    cluster = check.nodes
    accelerator, on_cpu = cluster.accelerator, cluster.accelerator.kind == "cpu"
    return TrialSpec(
        trial_id=f"{check_id}-trial",
        model=load_model(_MODEL),
        workload=Workload(seq_len=_SEQ_LEN, global_batch_size=cluster.world_size),
        layout=Layout(
            data_parallel_shard_degree=cluster.world_size,
            shard_level=ShardLevel.PARAMETERS if cluster.world_size > 1 else ShardLevel.NONE,
            precision=accelerator.reference_precision,
            attention_kernel=AttentionKernel.MATH,
        ),
        device="cpu" if on_cpu else "cuda",
        settings=_QUICK if check.request.quick else _FULL,
        reference_flop_per_s=None if on_cpu else accelerator.reference_flop_per_s,
        precision_flop_per_s=None if on_cpu else accelerator.peak_flop_per_s(Precision.BF16),
        cluster=cluster,
        jobs=jobs,
    )


def benchmark_spec(check_id: str, check: ClusterCheck, jobs: tuple[EngineJob, ...]) -> TrialSpec:
    """What the job of the benchmarks has of a trial: an id of its own, the nodes, a limit."""
    trial = small_trial(check_id, check, jobs)
    settings = TrialSettings(timeout_s=_BENCHMARK_S)
    return TrialSpec(
        trial_id=f"{check_id}-links",
        model=trial.model,
        workload=trial.workload,
        layout=trial.layout,
        device=trial.device,
        settings=settings,
        cluster=trial.cluster,
        jobs=trial.jobs,
    )
