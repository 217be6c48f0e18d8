"""Where a job stands, from what Kubernetes says of it and its pods."""

from __future__ import annotations

from collections.abc import Sequence

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.kubernetes.states import JobState, PodState

ABSENT_S = 15.0
"""How long after a pod should be gone its machine counts as out of reach."""

_TAKEN_AWAY = (
    *("Evicted", "NodeAffinity", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"),
    *("UnexpectedAdmissionError", "OutOf"),
)
"""How the kubelet or the node controller begins to say that it was not the pod's doing."""


def judged(
    job: JobState, pods: Sequence[PodState], num_nodes: int, *, now: float, start_timeout_s: float, begun: bool = False
) -> JobStatus:
    """Where it stands.

    Args:
        job: The Job, and the JobSet above it.
        pods: One for each index, the newest; some or all may not be there yet.
        num_nodes: Pods that there should be.
        now: Epoch seconds.
        start_timeout_s: From the moment the first pod has a machine until all have started.
        begun: All of them ran at once before.
    """
    if lost := loss(job, pods, begun=begun, now=now):
        return JobStatus(phase=EngineJobPhase.LOST, detail=lost)
    if job.is_over or job.is_deleted:
        return _ending(job, pods)
    if sum(pod.main.has_started for pod in pods) >= num_nodes:
        return JobStatus(phase=EngineJobPhase.RUNNING)
    waits = _why_it_waits(job, pods, num_nodes)
    since = min((pod.started_at for pod in pods if pod.started_at is not None), default=now)
    if now - since > start_timeout_s:
        return JobStatus(
            phase=EngineJobPhase.LOST, detail=f"not all pods started within {start_timeout_s:.0f} s: {waits}"
        )
    return JobStatus(phase=EngineJobPhase.QUEUED, detail=waits)


def loss(job: JobState, pods: Sequence[PodState], *, now: float, begun: bool = False) -> str:
    """How the cluster took nodes of the job away, as a sentence; empty where it did not."""
    if job.disruption:
        return job.disruption
    for pod in pods:
        if taken := _taken_away(pod):
            return f"pod {pod.name}{f' on {pod.node}' if pod.node else ''}: {taken}"
        if pod.was_deleted:
            return f"pod {pod.name} was deleted while it ran"
        if not pod.has_ended and pod.leaves_by is not None and now > pod.leaves_by + ABSENT_S:
            return f"pod {pod.name} was told to leave, and {pod.node or 'its machine'} does not answer"
    if begun and job.is_suspended and not job.is_over:
        return "the job was suspended while it ran: its queue gave its place to others"
    if job.failed and not any(pod.failed_by_itself for pod in pods):
        return "the job failed, and every pod of it had been told to leave, or is gone"
    return ""


def _taken_away(pod: PodState) -> str:
    if pod.phase == "Succeeded":
        return ""
    if pod.disruption:
        return pod.disruption
    if pod.reason.startswith(_TAKEN_AWAY):
        return pod.reason
    ran_out_of_time = pod.reason.startswith("DeadlineExceeded")  # the limit counts while pods wait for each other too
    return pod.reason if ran_out_of_time and not pod.main.has_started else ""


def _ending(job: JobState, pods: Sequence[PodState]) -> JobStatus:
    """Over, or about to be: pods may still be saying their last words."""
    leaving = [pod.name for pod in pods if not pod.has_ended]
    if leaving:
        return JobStatus(phase=EngineJobPhase.RUNNING, detail=f"ends: {', '.join(leaving[:3])} still there")
    return JobStatus(phase=EngineJobPhase.ENDED, detail=_how_it_ended(job, pods))


def _how_it_ended(job: JobState, pods: Sequence[PodState]) -> str:
    for pod in pods:
        for container in (pod.gathering, pod.main):
            if container.failed:
                return f"pod {pod.name}: {container.story}"
        if pod.reason:
            return f"pod {pod.name}: {pod.reason}"
    if job.failed:
        reason, message = job.conditions.get("Failed") or job.conditions["FailureTarget"]
        return ": ".join(filter(None, (reason, message)))
    return "deleted" if job.is_deleted and not job.is_over else ""


def _why_it_waits(job: JobState, pods: Sequence[PodState], num_nodes: int) -> str:
    """What holds it up, the most telling first."""
    for pod in pods:
        for container in (pod.main, pod.gathering):
            if not container.has_started and container.story:
                return f"pod {pod.name}: {container.story}"
    for pod in pods:
        if pod.unschedulable:
            return f"pod {pod.name}: {pod.unschedulable}"
    if job.is_suspended:
        return "suspended: it waits in its queue"
    started = sum(pod.main.has_started for pod in pods)
    return f"{sum(bool(pod.node) for pod in pods)} of {num_nodes} pods have a machine, {started} have started"
