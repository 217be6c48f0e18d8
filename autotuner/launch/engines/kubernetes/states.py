"""What Kubernetes says of a job and its pods, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from autotuner.launch.engines.kubernetes.objects import CONTAINER, INDEX

_PLAIN_WAITING = ("", "ContainerCreating", "PodInitializing")
"""Reasons to wait that say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod.

    Attributes:
        has_started: Its process runs, or has run.
        exit_code: None while it has not ended.
        reason: Why it waits, or how it ended, in a word: ``ErrImagePull``, ``OOMKilled``.
        message: The same as a sentence, or the last lines of what failed.
    """

    has_started: bool = False
    exit_code: int | None = None
    reason: str = ""
    message: str = ""

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
    """A pod, as it was last seen.

    Attributes:
        index: Which node of its job it is.
        node: Machine that it was given; empty while it waits for one.
        phase: Pending, Running, Succeeded, Failed or Unknown.
        reason: Why the pod as a whole ended (``Evicted``, ``DeadlineExceeded``), with its message.
        unschedulable: Why no machine has room for it.
        disruption: Why it was chosen to make room, or lost its machine.
        main: The container that is the node.
        gathering: The one that waits for the other pods, where there is one.
        started_at: When its machine took it, epoch seconds; None before.
        leaves_by: When it should be gone, epoch seconds; None where nobody deleted it.
        was_deleted: Somebody deleted it while it ran.
        is_gone: The cluster knows it no longer.
    """

    name: str
    index: int
    created_at: float = 0.0
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    unschedulable: str = ""
    disruption: str = ""
    main: Container = field(default_factory=Container)
    gathering: Container = field(default_factory=Container)
    started_at: float | None = None
    leaves_by: float | None = None
    was_deleted: bool = False
    is_gone: bool = False

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
    """A Job, with the JobSet above it where there is one.

    Attributes:
        is_suspended: It may not start yet, or no longer.
        is_deleted: Somebody is deleting it.
        conditions: Those that hold, by type, each with its reason and message.
    """

    is_suspended: bool = False
    is_deleted: bool = False
    conditions: Mapping[str, tuple[str, str]] = field(default_factory=dict)

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
