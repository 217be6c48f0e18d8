"""Reads the state of Kubernetes jobs and pods into plain values, and remembers objects that were deleted meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import JobStatus
from autotuner.launch.engines.kubernetes_objects import CONTAINER, INDEX, JOB_LABEL

_PLAIN_WAITING = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that tell a person nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The state of a container as Kubernetes reports it: whether it has started, its exit code, and a reason."""

    has_started: bool = False
    """True if the container's process runs, or has run."""
    exit_code: int | None = None
    """Exit code of the container; None while it runs."""
    reason: str = ""
    """Reason why the container waits, or how it ended, in one word: ``ErrImagePull``, ``OOMKilled``."""
    message: str = ""
    """The reason as a sentence, or the last lines that a failed container printed."""

    @property
    def failed(self) -> bool:
        """Return True if the container ended with an error."""
        return self.exit_code not in (None, 0)

    @property
    def story(self) -> str:
        """Describe the state of the container for a person; empty if the container starts normally."""
        if self.reason in _PLAIN_WAITING:
            return ""
        ended = "" if self.exit_code is None else f"exit code {self.exit_code}, "
        return f"{ended}{self.reason}{': ' if self.message else ''}{self.message.strip()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """The state of a pod when the cluster last listed it: its phase, its machine, and why it waits or ended.

    A pod runs one node of a job.
    """

    name: str
    index: int
    """Index of the pod's node within its job."""
    created_at: float = 0.0
    node: str = ""
    """Machine on which the pod runs; empty while it waits for one."""
    phase: str = "Pending"
    """Pending, Running, Succeeded, Failed or Unknown."""
    reason: str = ""
    """Reason why the pod as a whole ended (``Evicted``, ``DeadlineExceeded``), with its message."""
    unschedulable: str = ""
    """Reason why no machine has room for the pod."""
    disruption: str = ""
    """Reason why the pod was evicted or lost its machine."""
    main: Container = field(default_factory=Container)
    """The container that runs the node."""
    gathering: Container = field(default_factory=Container)
    """The init container that waits for the other pods; empty if there is none."""
    started_at: float | None = None
    """Time at which a machine took the pod, in epoch seconds; None before."""
    leaves_by: float | None = None
    """Time by which the pod should be gone, in epoch seconds; None if nobody deleted it."""
    was_deleted: bool = False
    """True if somebody deleted the pod while it ran."""
    is_gone: bool = False
    """True if the cluster no longer has this pod."""

    @property
    def has_ended(self) -> bool:
        """Return True if no process of the pod is left, as far as the cluster knows."""
        return self.is_gone or self.phase in ("Succeeded", "Failed")

    @property
    def failed_by_itself(self) -> bool:
        """Return True if the pod failed before anybody asked it to end."""
        return self.leaves_by is None and (self.phase == "Failed" or self.main.failed or self.gathering.failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a Kubernetes Job object: suspended, being deleted, failed or complete."""

    is_suspended: bool = False
    """True if Kubernetes starts no pods of the Job, because it is suspended."""
    is_deleted: bool = False
    """True if somebody is deleting the Job."""
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Conditions that hold, by type, each with its reason and message."""

    @property
    def failed(self) -> bool:
        """Return True if the Job has failed, or will fail as soon as its pods have ended."""
        return "Failed" in self.conditions or "FailureTarget" in self.conditions

    @property
    def is_over(self) -> bool:
        """Return True if the Job has failed or is complete."""
        return self.failed or "Complete" in self.conditions

    @property
    def disruption(self) -> str:
        """Describe the lost pod that made the Job fail; empty if the Job did not fail because of a lost pod."""
        for kind in ("FailureTarget", "Failed"):
            reason, message = self.conditions.get(kind, ("", ""))
            if reason == "PodFailurePolicy":
                return message or reason
        return ""


def job_state(document: Mapping[str, Any]) -> JobState:
    """Return the state that the JSON document of a Kubernetes Job describes."""
    return JobState(
        is_suspended=bool(document["spec"].get("suspend")),
        is_deleted="deletionTimestamp" in document["metadata"],
        conditions=_conditions(document),
    )


def pod_state(document: Mapping[str, Any]) -> PodState:
    """Return the state that the JSON document of a Kubernetes pod describes."""
    metadata, status = document["metadata"], document.get("status", {})
    conditions = _conditions(document)
    leaves_at = metadata.get("deletionTimestamp")
    return PodState(
        name=metadata["name"],
        index=int((metadata.get("annotations") or {}).get(INDEX, 0)),
        created_at=_epoch_s(metadata.get("creationTimestamp")) or 0.0,
        node=document.get("spec", {}).get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        reason=_with_message(status.get("reason"), status.get("message")),
        unschedulable=_conditions(document, "False").get("PodScheduled", ("", ""))[1],
        disruption=_with_message(*conditions["DisruptionTarget"]) if "DisruptionTarget" in conditions else "",
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
    """Return the container with this name; if the name is empty, the last container that ran or is starting."""
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


def _with_message(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, (reason, message)))


def _epoch_s(timestamp: str | None) -> float | None:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else None


# The phase of a job, from the state of its Job object and its pods.

ABSENT_S = 15.0
"""Seconds after which a pod that should be gone but is not counts as out of reach, together with its machine."""

_TAKEN_AWAY = (
    *("Evicted", "NodeAffinity", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"),
    *("UnexpectedAdmissionError", "OutOf"),
)
"""First words of the reasons by which Kubernetes says that a pod ended through no fault of its own."""


def judged(
    job: JobState, pods: Sequence[PodState], num_nodes: int, *, now: float, start_timeout_s: float, begun: bool = False
) -> JobStatus:
    """Return whether a job is queued, running, ended or lost, with the reason in words.

    Args:
        job: State of the Job object.
        pods: The newest pod of each index; some or all may not exist yet.
        num_nodes: Number of pods that the job should have.
        now: Epoch seconds.
        start_timeout_s: Longest time in seconds from the assignment of the first pod to a machine until all pods have
            started.
        begun: True if at some earlier time all pods were running.
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
    """Return a sentence that says how the cluster took nodes away from the job; empty if it took none."""
    if job.disruption:
        return job.disruption
    for pod in pods:
        if taken := _taken_away(pod):
            return f"pod {pod.name}{f' on {pod.node}' if pod.node else ''}: {taken}"
        if pod.was_deleted:
            return f"pod {pod.name} was deleted while it ran"
        if not pod.has_ended and pod.leaves_by is not None and now > pod.leaves_by + ABSENT_S:
            return (
                f"pod {pod.name} was asked to end, and its machine{' ' + pod.node if pod.node else ''} does not answer"
            )
    if begun and job.is_suspended and not job.is_over:
        return "the job was suspended while it ran: its queue gave its resources to another job"
    if job.failed and not any(pod.failed_by_itself for pod in pods):
        return "the job failed after all of its pods were asked to end or were deleted"
    return ""


def _taken_away(pod: PodState) -> str:
    if pod.phase == "Succeeded":
        return ""
    if pod.disruption:
        return pod.disruption
    if pod.reason.startswith(_TAKEN_AWAY):
        return pod.reason
    ran_out_of_time = pod.reason.startswith("DeadlineExceeded")  # the limit also counts while pods wait for each other
    return pod.reason if ran_out_of_time and not pod.main.has_started else ""


def _ending(job: JobState, pods: Sequence[PodState]) -> JobStatus:
    """Return the status of a job that is over: running while a pod still writes its last output, ended after that."""
    leaving = [pod.name for pod in pods if not pod.has_ended]
    if leaving:
        return JobStatus(
            phase=EngineJobPhase.RUNNING, detail=f"the job is ending: {', '.join(leaving[:3])} still exist"
        )
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
    """Return the most useful of the reasons why the job waits."""
    for pod in pods:
        for container in (pod.main, pod.gathering):
            if not container.has_started and container.story:
                return f"pod {pod.name}: {container.story}"
    for pod in pods:
        if pod.unschedulable:
            return f"pod {pod.name}: {pod.unschedulable}"
    if job.is_suspended:
        return "the job is suspended: it waits in its queue"
    started = sum(pod.main.has_started for pod in pods)
    return f"{sum(bool(pod.node) for pod in pods)} of {num_nodes} pods have a machine, {started} have started"


# The known jobs of an engine: the last list, and the last state of objects that are gone.


@dataclass(slots=True)
class _Record:
    """A job, its pods by name, and events that were seen earlier and that Kubernetes' objects no longer show."""

    job: Mapping[str, Any] | None = None
    pods: dict[str, PodState] = field(default_factory=dict)
    begun: bool = False
    is_cancelled: bool = False
    is_gone: bool = False

    @property
    def state(self) -> JobState:
        return JobState() if self.job is None else job_state(self.job)

    @property
    def num_nodes(self) -> int:
        return 0 if self.job is None else num_nodes_of(self.job)

    @property
    def newest(self) -> list[PodState]:
        """Return the newest pod of each index."""
        by_index = {pod.index: pod for pod in sorted(self.pods.values(), key=lambda pod: pod.created_at)}
        return [by_index[index] for index in sorted(by_index)]


class Jobs:
    """A thread-safe copy of the state of the cluster's Jobs and pods, so that not every question needs a request."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()

    def listed(self, jobs: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> None:
        """Update the copy from complete lists of jobs and pods. An object that is missing in its list no longer exists.

        Request the list of pods before the list of jobs. Then the state of a job already explains why one of its pods
        ends.
        """
        with self._lock:
            present = {document["metadata"]["name"] for document in jobs}
            for record in self._records.values():
                record.is_gone = record.job is not None and record.job["metadata"]["name"] not in present
            for document in jobs:
                if (known := self._record(document)) is not None:
                    known.job = document
            names = {document["metadata"]["name"] for document in pods}
            for record in self._records.values():
                for name in record.pods.keys() - names:
                    record.pods[name] = _gone(record, record.pods[name])
            for document in pods:
                if (known := self._record(document)) is not None:
                    _take(known, pod_state(document))

    def status(self, name: str, *, now: float, start_timeout_s: float) -> JobStatus | None:
        """Return the state of the job with that name, or None if no list has contained the job."""
        with self._lock:
            record = self._records.get(name)
            return None if record is None or record.job is None else _status(record, now, start_timeout_s)

    def pod(self, name: str, index: int) -> PodState | None:
        """Return the newest pod of the job for the node with the number ``index``, or None if no pod is known."""
        with self._lock:
            record = self._records.get(name)
            return next((pod for pod in record.newest if pod.index == index), None) if record else None

    def cancel(self, name: str) -> None:
        """Record that this service asked for the end of the job.

        Then the end of the job's pods does not count as a loss of nodes.
        """
        with self._lock:
            self._records.setdefault(name, _Record()).is_cancelled = True

    def forget(self, name: str) -> None:
        """Delete the record of the job, and ignore the job in later lists."""
        with self._lock:
            self._records.pop(name, None)
            self._forgotten.add(name)

    def _record(self, document: Mapping[str, Any]) -> _Record | None:
        name = (document["metadata"].get("labels") or {}).get(JOB_LABEL)
        return None if name is None or name in self._forgotten else self._records.setdefault(name, _Record())


def num_nodes_of(job: Mapping[str, Any]) -> int:
    """Return the number of pods of a Job; each pod is one node."""
    return int(job["spec"].get("completions", 1))


def _take(record: _Record, pod: PodState) -> None:
    before = record.pods.get(pod.name)
    must_leave = pod.leaves_by is not None and (before is None or before.leaves_by is None)
    if before is not None and before.has_ended:
        pod = replace(pod, leaves_by=before.leaves_by)  # Kubernetes removes pods that end only later
    was_deleted = (before is not None and before.was_deleted) or (must_leave and _is_alone(record, pod))
    record.pods[pod.name] = replace(pod, was_deleted=was_deleted)
    record.begun = record.begun or sum(one.main.has_started for one in record.newest) >= record.num_nodes > 0


def _gone(record: _Record, pod: PodState) -> PodState:
    was_deleted = pod.was_deleted or (pod.leaves_by is None and _is_alone(record, pod))
    return replace(pod, was_deleted=was_deleted, is_gone=True)


def _is_alone(record: _Record, pod: PodState) -> bool:
    """Return True if a pod leaves while its job goes on, though nobody cancelled the job and no other pod failed."""
    if record.is_cancelled or record.is_gone or pod.has_ended:
        return False
    if any(one.phase == "Failed" for one in record.pods.values()):
        return False
    state = record.state
    return not (state.is_over or state.is_deleted)


def _status(record: _Record, now: float, start_timeout_s: float) -> JobStatus:
    state, pods = record.state, record.newest
    if record.is_cancelled or (record.is_gone and state.is_over):
        state = JobState(is_deleted=True, conditions={} if record.is_cancelled else state.conditions)
        pods = [replace(pod, disruption="", reason="", was_deleted=False) for pod in pods]
    elif record.is_gone or (state.is_deleted and not state.is_over):
        return JobStatus(phase=EngineJobPhase.LOST, detail="somebody deleted the Job")
    return judged(state, pods, record.num_nodes, now=now, start_timeout_s=start_timeout_s, begun=record.begun)
