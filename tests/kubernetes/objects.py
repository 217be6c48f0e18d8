"""The objects of a cluster that is no real one, each change with a version of its own, as watches need them.

What they are held to when they are made are the client's own models, and a few rules beside.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from kubernetes.client import models
from pydantic import ValidationError

# ---------------------------------------------------------------- objects

Document = dict[str, Any]


class Refused(Exception):
    """An answer that is none of success, as a Status of Kubernetes."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)

    @property
    def document(self) -> Document:
        """What is sent."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.status,
        }


@dataclass(frozen=True, slots=True)
class Event:
    """One change: the object as it was after it."""

    version: int
    plural: str
    type: str
    document: Document


@dataclass
class Objects:
    """All objects of one namespace, by plural and name; any thread may use it."""

    lock: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    version: int = 1000
    oldest: int = 1000
    events: list[Event] = field(default_factory=list)
    _by_key: dict[tuple[str, str], Document] = field(default_factory=dict)

    def create(self, plural: str, namespace: str, document: Document) -> Document:
        """Take a new object."""
        with self.lock:
            made = copy.deepcopy(document)
            metadata = made.setdefault("metadata", {})
            if "name" not in metadata:
                metadata["name"] = metadata["generateName"] + uuid4().hex[:5]
            name = metadata["name"]
            if (plural, name) in self._by_key:
                raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
            metadata |= {"namespace": namespace, "uid": str(uuid4()), "creationTimestamp": now_text()}
            return self._store(plural, made, "ADDED")

    def get(self, plural: str, name: str) -> Document | None:
        """A copy of that object."""
        with self.lock:
            found = self._by_key.get((plural, name))
            return copy.deepcopy(found)

    def need(self, plural: str, name: str) -> Document:
        """A copy of that object, which has to be there."""
        found = self.get(plural, name)
        if found is None:
            raise Refused(404, "NotFound", f'{plural} "{name}" not found')
        return found

    def all(self, plural: str, keep: Callable[[Document], bool] = lambda document: True) -> list[Document]:
        """Copies of all objects of a kind."""
        with self.lock:
            found = [document for (kind, _), document in self._by_key.items() if kind == plural and keep(document)]
            return copy.deepcopy(found)

    def change(self, plural: str, name: str, how: Callable[[Document], None]) -> None:
        """Change the object in place; nothing happens where it is gone, or stays as it was."""
        with self.lock:
            found = self._by_key.get((plural, name))
            if found is None:
                return
            changed = copy.deepcopy(found)
            how(changed)
            if changed != found:
                self._store(plural, changed, "MODIFIED")

    def delete(self, plural: str, name: str, *, grace_s: float = 0.0, finalizer: str = "") -> None:
        """Ask for its end: at once where nobody has to do anything before."""

        def told(document: Document) -> None:
            metadata = document["metadata"]
            metadata.setdefault("deletionTimestamp", now_text(grace_s))
            metadata.setdefault("deletionGracePeriodSeconds", int(grace_s))
            if finalizer:
                metadata["finalizers"] = [finalizer]

        with self.lock:
            self.need(plural, name)
            if plural == "pods" or finalizer:
                self.change(plural, name, told)
            else:
                self.remove(plural, name)

    def remove(self, plural: str, name: str) -> None:
        """Know it no longer."""
        with self.lock:
            found = self._by_key.pop((plural, name), None)
            if found is not None:
                self._tell(plural, copy.deepcopy(found), "DELETED")

    def forget_events(self) -> None:
        """Watches from before now are too old."""
        with self.lock:
            self.events.clear()
            self.version += 1
            self.oldest = self.version
            self.lock.notify_all()

    def since(self, version: int) -> list[Event]:
        """What changed after that version."""
        with self.lock:
            if version < self.oldest:
                raise Refused(410, "Expired", f"too old resource version: {version} ({self.oldest})")
            return [event for event in self.events if event.version > version]

    def _store(self, plural: str, document: Document, kind: str) -> Document:
        self._by_key[plural, document["metadata"]["name"]] = document
        self._tell(plural, document, kind)
        return copy.deepcopy(document)

    def _tell(self, plural: str, document: Document, kind: str) -> None:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(Event(self.version, plural, kind, copy.deepcopy(document)))
        self.lock.notify_all()


def labelled(selector: str) -> Callable[[Document], bool]:
    """Whether an object has all labels of ``a=b,c=d``."""
    wanted = dict(pair.split("=", 1) for pair in selector.split(",") if pair)

    def has(document: Document) -> bool:
        labels = document["metadata"].get("labels") or {}
        return all(labels.get(name) == value for name, value in wanted.items())

    return has


def condition(document: Document, kind: str, reason: str = "", message: str = "", status: str = "True") -> None:
    """Have the object say that of itself."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    for one in conditions:
        if one["type"] == kind:
            if one["status"] != status:
                one |= {"status": status, "reason": reason, "message": message, "lastTransitionTime": now_text()}
            return
    conditions.append(
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now_text()}
    )


def holds(document: Document, kind: str) -> bool:
    """Whether the object says that of itself."""
    conditions = document.get("status", {}).get("conditions", [])
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)


def now_text(later_s: float = 0.0) -> str:
    """A moment as Kubernetes writes it: whole seconds."""
    return datetime.fromtimestamp(time.time() + later_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---------------------------------------------------------------- checks

_MODELS = {"jobs": "V1Job", "services": "V1Service", "pods": "V1Pod"}
_MOST_OF_A_HOSTNAME = 63

_JOB_SET_SPEC = {
    *("coordinator", "failurePolicy", "managedBy", "network", "replicatedJobs", "startupPolicy", "successPolicy"),
    *("suspend", "ttlSecondsAfterFinished", "volumeClaimPolicies"),
}
_REPLICATED_JOB = {"dependsOn", "groupName", "name", "replicas", "template"}
_NETWORK = {"enableDNSHostnames", "publishNotReadyAddresses", "subdomain"}


def check(plural: str, document: Document) -> None:
    """Refuse what a strict server would.

    Raises:
        Refused: 400 for fields that are not known, 422 for values that do not fit.
    """
    if plural == "jobsets":
        _check_job_set(document)
        return
    _check_model(_MODELS[plural], document)
    if plural == "jobs":
        _check_job(document["metadata"]["name"], document["spec"])


def _check_model(model: str, document: Document) -> None:
    try:
        getattr(models, model).model_validate(document)
    except ValidationError as error:
        raise Refused(400, "BadRequest", f"strict decoding error: {error.errors()[0]}") from error


def _check_job(name: str, spec: Document) -> None:
    if spec["template"]["spec"]["restartPolicy"] != "Never":
        raise Refused(422, "Invalid", "spec.template.spec.restartPolicy: only Never goes with podFailurePolicy")
    if len(f"{name}-{spec['completions'] - 1}") > _MOST_OF_A_HOSTNAME:
        raise Refused(422, "Invalid", f"metadata.name: {name} makes hostnames longer than {_MOST_OF_A_HOSTNAME}")
    if spec.get("podReplacementPolicy") not in (None, "Failed"):
        raise Refused(422, "Invalid", "spec.podReplacementPolicy: only Failed goes with podFailurePolicy")


def _check_job_set(document: Document) -> None:
    spec = document["spec"]
    _check_known("spec", spec, _JOB_SET_SPEC)
    _check_known("spec.network", spec.get("network", {}), _NETWORK)
    for replicated in spec["replicatedJobs"]:
        _check_known("spec.replicatedJobs", replicated, _REPLICATED_JOB)
        _check_model("V1JobTemplateSpec", replicated["template"])
        name = f"{document['metadata']['name']}-{replicated['name']}-0"
        _check_job(name, replicated["template"]["spec"])


def _check_known(path: str, document: Document, known: set[str]) -> None:
    if unknown := document.keys() - known:
        raise Refused(400, "BadRequest", f'strict decoding error: unknown field "{path}.{min(unknown)}"')
