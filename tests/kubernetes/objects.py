"""The objects of a cluster that is no real one.

What they are held to when they are made are the client's own models, and a few rules beside.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
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
        said = {"message": message, "reason": reason, "code": status}
        self.document = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"} | said
        super().__init__(message)


class Objects:
    """All objects of one namespace, by plural and name; any thread may use it."""

    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.version = 1000
        self._by_key: dict[tuple[str, str], Document] = {}

    def create(self, plural: str, namespace: str, document: Document) -> Document:
        """Take a new object."""
        with self.lock:
            made = copy.deepcopy(document)
            metadata = made.setdefault("metadata", {})
            name = metadata.setdefault("name", metadata.get("generateName", "") + uuid4().hex[:5])
            if (plural, name) in self._by_key:
                raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
            metadata |= {"namespace": namespace, "uid": str(uuid4()), "creationTimestamp": now_text()}
            self._by_key[plural, name] = made
            self._tell(made)
            return copy.deepcopy(made)

    def get(self, plural: str, name: str) -> Document | None:
        """A copy of that object."""
        with self.lock:
            return copy.deepcopy(self._by_key.get((plural, name)))

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

    def change(self, plural: str, name: str, how: Callable[[Document], object]) -> None:
        """Change the object in place; nothing happens where it is gone, or stays as it was."""
        with self.lock:
            found = self._by_key.get((plural, name))
            changed = copy.deepcopy(found)
            if found is None or changed is None:
                return
            how(changed)
            if changed != found:
                self._by_key[plural, name] = changed
                self._tell(changed)

    def delete(self, plural: str, name: str, *, grace_s: float = 0.0) -> None:
        """Ask for its end: at once of a Service, in the end of what somebody has to end before."""
        if plural == "services":
            self.remove(plural, name)
            return
        told = {"deletionTimestamp": now_text(grace_s), "deletionGracePeriodSeconds": int(grace_s)}
        self.change(plural, name, lambda document: document.update(metadata=told | document["metadata"]))

    def remove(self, plural: str, name: str) -> None:
        """Know it no longer."""
        with self.lock:
            found = self._by_key.pop((plural, name), None)
            if found is not None:
                self._tell(found)

    def _tell(self, document: Document) -> None:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.lock.notify_all()


def labelled(selector: str) -> Callable[[Document], bool]:
    """Whether an object has all labels of ``a=b,c=d``."""
    wanted = dict(pair.split("=", 1) for pair in selector.split(",") if pair)
    return lambda document: wanted.items() <= (document["metadata"].get("labels") or {}).items()


def condition(document: Document, kind: str, reason: str = "", message: str = "", status: str = "True") -> None:
    """Have the object say that of itself."""
    conditions = document.setdefault("status", {}).setdefault("conditions", [])
    told = {"type": kind, "status": status, "reason": reason, "message": message}
    known = next((one for one in conditions if one["type"] == kind), None)
    if known is None:
        conditions.append(told | {"lastTransitionTime": now_text()})
    elif known["status"] != status:
        known |= told | {"lastTransitionTime": now_text()}


def holds(document: Document, kind: str) -> Document | None:
    """What the object says of itself under that name, if it is true."""
    conditions = document.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def has_ended(pod: Document) -> bool:
    """Whether none of its containers runs any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def now_text(later_s: float = 0.0) -> str:
    """A moment as Kubernetes writes it: whole seconds."""
    return datetime.fromtimestamp(time.time() + later_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---------------------------------------------------------------- checks

_MODELS = {"jobs": "V1Job", "services": "V1Service", "pods": "V1Pod"}
_MOST_OF_A_HOSTNAME = 63


def check(plural: str, document: Document) -> None:
    """Refuse what a strict server would.

    Raises:
        Refused: 400 for fields that are not known, 422 for values that do not fit.
    """
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
