"""The findings of a cluster check in words, one sentence for each, without full stops."""

from __future__ import annotations

import re

from autotuner.core.cluster import Cluster
from autotuner.core.link import Link, links_compared, links_judged
from autotuner.core.measurement import Measurement
from autotuner.core.profile import CollectivePoint, DeviceProfile, knows_links, measured_link_health, profiled
from autotuner.core.trial import EngineJob, EngineJobPhase, TrialFailure
from autotuner.core.units import format_bytes, format_rate, format_seconds

_ERROR = re.compile(r"[\w.]*(Error|Exception|error)\b.*: ")

_NOT_INSTALLED = ("No module named 'torch'", "No module named 'autotuner'", "No module named autotuner")


def job_said(what: str, job: EngineJob, cluster: Cluster) -> str:
    """Describe the state of a job that a check of a cluster started on an engine (a scheduler such as Slurm).

    Args:
        what: Purpose of the job in words, such as "the trial" or "the benchmarks".
        job: The job.
        cluster: The cluster that is checked.
    """
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
    """Describe why a cluster check cancelled its job: the job did not start within ``waited_s`` seconds."""
    why = f" ({job.detail})" if job.detail else ""
    return f"no job started within {format_seconds(waited_s)}{why}; job {job.handle} is cancelled"


def trial_said(measured: Measurement) -> str:
    """Describe the result of the trial that a check of a cluster ran: its speed and memory."""
    num_ranks, source = len(measured.peak_bytes), measured.peak_source
    return (
        f"trial: {measured.num_steps} steps of {format_seconds(measured.step_time_s)} on {num_ranks} ranks, "
        f"{format_rate(measured.tokens_per_s, 'token/s')}, {100 * measured.mfu:.1f} % of the peak ({source})"
    )


def failure_said(what: str, failure: TrialFailure, cluster: Cluster) -> str:
    """Describe why a job of a cluster check failed. If torch or the trial package is not installed, the text says so.

    Args:
        what: Purpose of the job in words, such as "the trial" or "the benchmarks".
        failure: The failure.
        cluster: The cluster that is checked.
    """
    if any(sign in failure.message or sign in failure.log_tail for sign in _NOT_INSTALLED):
        return (
            f"{what}: a node of {cluster.engine} has no torch or no parallelism-autotuner; set `python` in the "
            "engine's registration to an interpreter on the nodes that has both"
        )
    where = "" if failure.rank is None else f" (rank {failure.rank})"
    last = _last_error(failure.log_tail) if failure.rank is None else ""
    about = f"; the last printed line: {last}" if last else ""
    return f"{what}: {failure.kind}{where}: {failure.message}{about}"


def _last_error(text: str) -> str:
    """Return the last line that names an error, or else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    return next(iter((errors or lines)[-1:]), "")


def collective_said(point: CollectivePoint) -> str:
    """Describe the measured time and rate of one collective at one message size."""
    if point.num_nodes == 1:
        who = f"{point.num_ranks} ranks of a node"
    elif point.num_ranks == point.num_nodes:
        who = f"one rank of each of {point.num_nodes} nodes"
    else:
        who = f"all {point.num_ranks} ranks of {point.num_nodes} nodes"
    rate = format_rate(point.sent_bytes / point.seconds, "B/s")
    kind, size = point.kind.replace("_", "-"), format_bytes(point.num_bytes)
    return f"links: {who}: {kind} of {size} in {format_seconds(point.seconds)}, {rate} sent by each rank"


def links_said(cluster: Cluster, profile: DeviceProfile) -> list[str]:
    """Describe the speed of the links within a node and between nodes, as measured and as the cluster describes it.

    A kind of link without a measurement is left out.

    Args:
        cluster: The cluster with its described links.
        profile: Device profile with the measured links.
    """
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
    """Describe the links that were measured separately, with the faults of degraded links; empty if there are none.

    Args:
        cluster: The cluster with its described links.
        profile: Device profile with the measurements.
    """
    points, between_nodes = profile.measurements.links, profile.links_num_nodes > 1
    if not points:
        return []
    found = measured_link_health(cluster, profile)
    compared = f"each link: {links_compared(points, between_nodes=between_nodes)}"
    if not knows_links(profile, cluster):
        return [
            compared,
            f"the engine does not say which nodes of the cluster's {cluster.num_nodes} nodes were measured",
        ]
    return [compared, *links_judged(found, points, between_nodes=between_nodes)]


def stored_said(cluster: Cluster, profile: DeviceProfile) -> str:
    """Return the last line of a successful check, which says that the measured constants of the cluster are stored."""
    return f"the profile of {cluster.name} is stored: {profile.origin}"


def _link(link: Link) -> str:
    rate = format_rate(link.bandwidth_bytes_per_s * link.efficiency, "B/s")
    return f"{rate} and {format_seconds(link.latency_s)} a step"


def _nodes(cluster: Cluster) -> str:
    nodes = f"{cluster.num_nodes} node{'' if cluster.num_nodes == 1 else 's'}"
    return f"{nodes} of {cluster.accelerators_per_node}"
