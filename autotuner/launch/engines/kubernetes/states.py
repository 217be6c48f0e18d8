"""What Kubernetes says of a job and its pods, as plain values, and where the job stands by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.kubernetes.objects import CONTAINER, INDEX

# What Kubernetes says of a job and its pods, as plain values.

_PLAIN_WAITING = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod."""

    has_started: bool = False
    """Its process runs, or has run."""
    exit_code: int | None = None
    """None while it has not ended."""
    reason: str = ""
    """Why it waits, or how it ended, in a word: ``ErrImagePull``, ``OOMKilled``."""
    message: str = ""
    """The same as a sentence, or the last lines of what failed."""

    @property
    def failed(self) -> bool:
        """It ended, and not well."""
        return self.exit_code not in (None, 0)

    @property
    def story(self) -> str:
        """What there is to say of it, for a person."""
        if self.reason in _PLAIN_WAITING:
            return ""
        ended = "" if self.exit_code is None else f"exit code {self.exit_code}, "
        return f"{ended}{self.reason}{': ' if self.message else ''}{self.message.strip()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A pod, as it was last seen."""

    name: str
    index: int
    """Which node of its job it is."""
    created_at: float = 0.0
    node: str = ""
    """Machine that it was given; empty while it waits for one."""
    phase: str = "Pending"
    """Pending, Running, Succeeded, Failed or Unknown."""
    reason: str = ""
    """Why the pod as a whole ended (``Evicted``, ``DeadlineExceeded``), with its message."""
    unschedulable: str = ""
    """Why no machine has room for it."""
    disruption: str = ""
    """Why it was chosen to make room, or lost its machine."""
    main: Container = field(default_factory=Container)
    """The container that is the node."""
    gathering: Container = field(default_factory=Container)
    """The one that waits for the other pods, where there is one."""
    started_at: float | None = None
    """When its machine took it, epoch seconds; None before."""
    leaves_by: float | None = None
    """When it should be gone, epoch seconds; None where nobody deleted it."""
    was_deleted: bool = False
    """Somebody deleted it while it ran."""
    is_gone: bool = False
    """The cluster knows it no longer."""

    @property
    def has_ended(self) -> bool:
        """None of its processes is left, as far as the cluster knows."""
        return self.is_gone or self.phase in ("Succeeded", "Failed")

    @property
    def failed_by_itself(self) -> bool:
        """It failed, and nobody had told it to leave."""
        return self.leaves_by is None and (self.phase == "Failed" or self.main.failed or self.gathering.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A Job, with the JobSet above it where there is one."""

    is_suspended: bool = False
    """It may not start yet, or no longer."""
    is_deleted: bool = False
    """Somebody is deleting it."""
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Those that hold, by type, each with its reason and message."""

    @property
    def failed(self) -> bool:
        """It failed, or is about to: its pods are being ended."""
        return "Failed" in self.conditions or "FailureTarget" in self.conditions

    @property
    def is_over(self) -> bool:
        """It has failed or it is complete (Jobs and JobSets say that with different words)."""
        return self.failed or "Complete" in self.conditions or "Completed" in self.conditions

    @property
    def disruption(self) -> str:
        """Which pod was taken away, where that ended it; empty where something else did, or nothing."""
        for kind in ("FailureTarget", "Failed"):
            reason, message = self.conditions.get(kind, ("", ""))
            if reason == "PodFailurePolicy":
                return message or reason
        return ""


def job_state(*documents: Mapping[str, Any]) -> JobState:
    """What a Job says, and a JobSet above it."""
    conditions: dict[str, tuple[str, str]] = {}
    for document in documents:
        conditions |= _conditions(document)
    return JobState(
        is_suspended=any(document["spec"].get("suspend") for document in documents),
        is_deleted=any("deletionTimestamp" in document["metadata"] for document in documents),
        conditions=conditions,
    )


def pod_state(document: Mapping[str, Any]) -> PodState:
    """What a pod says."""
    metadata, status = document["metadata"], document.get("status", {})
    conditions = _conditions(document)
    leaves_at = metadata.get("deletionTimestamp")
    return PodState(
        name=metadata["name"],
        index=int((metadata.get("annotations") or {}).get(INDEX, 0)),
        created_at=_epoch_s(metadata.get("creationTimestamp")) or 0.0,
        node=document.get("spec", {}).get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        reason=_told(status.get("reason"), status.get("message")),
        unschedulable=_conditions(document, "False").get("PodScheduled", ("", ""))[1],
        disruption=_told(*conditions["DisruptionTarget"]) if "DisruptionTarget" in conditions else "",
        main=_container(status.get("containerStatuses"), CONTAINER),
        gathering=_container(status.get("initContainerStatuses"), ""),
        started_at=_epoch_s(status.get("startTime")),
        leaves_by=_epoch_s(leaves_at),
    )


def _conditions(document: Mapping[str, Any], status: str = "True") -> dict[str, tuple[str, str]]:
    return {
        one["type"]: (one.get("reason") or "", one.get("message") or "")
        for one in document.get("status", {}).get("conditions") or ()
        if one.get("status") == status
    }


def _container(statuses: list[Mapping[str, Any]] | None, name: str) -> Container:
    """The container of that name; where that is empty, the last that ran or tries to."""
    named = [one for one in statuses or () if not name or one["name"] == name]
    if not named:
        return Container()
    state = named[-1].get("state") or {}
    if ended := state.get("terminated"):
        return Container(
            has_started=ended.get("reason") not in ("ContainerCannotRun", "StartError"),
            exit_code=ended["exitCode"],
            reason=ended.get("reason") or "",
            message=ended.get("message") or "",
        )
    if "running" in state:
        return Container(has_started=True)
    waiting = state.get("waiting") or {}
    return Container(reason=waiting.get("reason") or "", message=waiting.get("message") or "")


def _told(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, message)))


def _epoch_s(timestamp: str | None) -> float | None:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


# Where a job stands, from what Kubernetes says of it and its pods.

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
