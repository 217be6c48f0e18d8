"""A check of a cluster's links: what its job measures, the small trial behind it, and what it says of both."""

from __future__ import annotations

import re

from autotuner.catalog.models import load_model
from autotuner.core.choices import AttentionKernel, Precision, ShardLevel
from autotuner.core.cluster import Cluster
from autotuner.core.cluster_check import ClusterCheck
from autotuner.core.layout import Layout
from autotuner.core.link import Link, links_compared, links_judged
from autotuner.core.measurement import Measurement
from autotuner.core.profile import (
    CollectivePoint,
    DeviceProfile,
    knows_links,
    measured_link_health,
    profiled,
)
from autotuner.core.trial import EngineJob, EngineJobPhase, TrialFailure
from autotuner.core.trial_spec import TrialSettings, TrialSpec
from autotuner.core.units import format_bytes, format_rate, format_seconds
from autotuner.core.workload import Workload

# The trial of a check: a small decoder on all ranks of the nodes, so that it needs whatever a real one needs.

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


# What a check says of what it found, a sentence each, without full stops.

_ERROR = re.compile(r"[\w.]*(Error|Exception|error)\b.*: ")

_NOT_INSTALLED = ("No module named 'torch'", "No module named 'trials'", "No module named trials")


def job_said(what: str, job: EngineJob, cluster: Cluster) -> str:
    """How the job of the trial or of the benchmarks stands."""
    about = f": {job.detail}" if job.detail else ""
    match job.phase:
        case EngineJobPhase.QUEUED:
            where = f", queue {cluster.queue}" if cluster.queue else ""
            return f"{what}: job {job.handle} waits for {_nodes(cluster)} of {job.engine}{where}{about}"
        case EngineJobPhase.RUNNING:
            return f"{what}: job {job.handle} runs on {_nodes(cluster)}"
        case EngineJobPhase.ENDED:
            return f"{what}: job {job.handle} has ended{about}"
        case EngineJobPhase.LOST:
            return f"{what}: job {job.handle} is lost{about}"


def queue_said(job: EngineJob, waited_s: float) -> str:
    """Why a check gave up."""
    why = f" ({job.detail})" if job.detail else ""
    return f"no job started within {format_seconds(waited_s)}{why}; job {job.handle} is cancelled"


def trial_said(measured: Measurement) -> str:
    """What the trial found."""
    num_ranks, source = len(measured.peak_bytes), measured.peak_source
    return (
        f"trial: {measured.num_steps} steps of {format_seconds(measured.step_time_s)} on {num_ranks} ranks, "
        f"{format_rate(measured.tokens_per_s, 'token/s')}, {100 * measured.mfu:.1f} % of the peak ({source})"
    )


def failure_said(what: str, failure: TrialFailure, cluster: Cluster) -> str:
    """Why the trial or the benchmarks did not end well; what every new cluster lacks is told in plain words."""
    if any(sign in failure.message or sign in failure.log_tail for sign in _NOT_INSTALLED):
        return (
            f"{what}: a node of {cluster.engine} has no torch, or not our package trials; `python` of the engine's "
            "registration must name an interpreter on the nodes that has both"
        )
    where = "" if failure.rank is None else f" (rank {failure.rank})"
    last = _last_error(failure.log_tail) if failure.rank is None else ""
    about = f"; the last that was printed: {last}" if last else ""
    return f"{what}: {failure.kind}{where}: {failure.message}{about}"


def _last_error(text: str) -> str:
    """The last line that names an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return next(iter((errors or lines)[-1:]), "")


def collective_said(point: CollectivePoint) -> str:
    """One collective at one size."""
    if point.num_nodes == 1:
        who = f"{point.num_ranks} ranks of a node"
    elif point.num_ranks == point.num_nodes:
        who = f"one rank of each of {point.num_nodes} nodes"
    else:
        who = f"all {point.num_ranks} ranks of {point.num_nodes} nodes"
    rate = format_rate(point.sent_bytes / point.seconds, "B/s")
    kind, size = point.kind.replace("_", "-"), format_bytes(point.num_bytes)
    return f"links: {who}: {kind} of {size} in {format_seconds(point.seconds)}, {rate} sent by each"


def links_said(cluster: Cluster, profile: DeviceProfile) -> list[str]:
    """Each link as it was measured, beside what the cluster's description has."""
    found = profiled(cluster, profile)
    pairs = (
        ("within a node", cluster.intra_node_link, found.intra_node_link),
        ("between nodes", cluster.inter_node_link, found.inter_node_link),
    )
    return [
        f"{where}: {_link(new)} measured, {_link(old)} described ({old.name})"
        for where, old, new in pairs
        if new != old
    ]


def each_link_said(cluster: Cluster, profile: DeviceProfile) -> list[str]:
    """Links that were measured one by one, and what ails which of them."""
    points, between_nodes = profile.measurements.links, profile.links_num_nodes > 1
    if not points:
        return []
    found = measured_link_health(cluster, profile)
    compared = f"links one by one: {links_compared(points, between_nodes=between_nodes)}"
    if not knows_links(profile, cluster):
        return [compared, f"the engine does not say which of the cluster's {cluster.num_nodes} nodes these are"]
    return [compared, *links_judged(found, points, between_nodes=between_nodes)]


def stored_said(cluster: Cluster, profile: DeviceProfile) -> str:
    """The last line of a check that went well."""
    return f"the profile of {cluster.name} is stored: {profile.origin}"


def _link(link: Link) -> str:
    rate = format_rate(link.bandwidth_bytes_per_s * link.efficiency, "B/s")
    return f"{rate} and {format_seconds(link.latency_s)} a step"


def _nodes(cluster: Cluster) -> str:
    nodes = f"{cluster.num_nodes} node{'' if cluster.num_nodes == 1 else 's'}"
    return f"{nodes} of {cluster.accelerators_per_node}"
