"""A job while each link that a fault trace befalls is in its worst state: what layouts must be able to bear."""

from __future__ import annotations

from dataclasses import replace

from autotuner.core.jobs.cluster import Cluster
from autotuner.core.jobs.fault_trace import FaultTrace
from autotuner.core.jobs.job import Job
from autotuner.core.jobs.link_health import LinkEnds, LinkHealth
from autotuner.errors import InvalidInput

__all__ = ["at_worst", "require_links"]


def at_worst(job: Job, trace: FaultTrace | None) -> Job:
    """The job that a layout must be legal for: it may need no link that dies, and place its stages around slow ones.

    A link that is dead in some step is dead here; of other states the one with the largest delay stands.

    Raises:
        InvalidInput: The cluster lacks one of the links.
    """
    if trace is None:
        return job
    require_links(trace, job.cluster)
    worst: dict[LinkEnds | None, LinkHealth] = {}
    for fault in trace.faults:
        ends, health = fault.health.ends, fault.health
        if not health.is_healthy and (ends not in worst or health.severity > worst[ends].severity):
            worst[ends] = health
    if not worst:
        return job
    return replace(job, cluster=job.cluster.with_link_health(worst.values()))


def require_links(trace: FaultTrace, cluster: Cluster) -> None:
    """Return if the cluster has every link that something befalls.

    Raises:
        InvalidInput: With the first line whose link it lacks.
    """
    num_ends = cluster.num_link_ends
    for fault in trace.faults:
        low, high = fault.health.ends or (0, 0)
        if high >= num_ends:
            what = "nodes" if cluster.num_nodes > 1 else "accelerators"
            rule = f"{cluster.name} has no link {low}_{high}: its links join {num_ends} {what}, numbered from 0"
            nearest = f"{max(0, num_ends - 2)}_{num_ends - 1}" if num_ends > 1 else None
            raise InvalidInput("fault_trace", str(fault), rule, nearest)
