"""What makes pods of Jobs, and ends what belongs to objects that end."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.objects import Document, Objects, condition, has_ended, holds

INDEX = "batch.kubernetes.io/job-completion-index"
_QUEUE = "kueue.x-k8s.io/queue-name"


class Controllers:
    """One pass over all objects at a time.

    Attributes:
        admits: Whether Kueue lets suspended jobs of its queues start.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.admits = True
        self._made: dict[str, set[int]] = {}

    def run(self) -> None:
        """Bring everything a step nearer to what is asked for."""
        for document in self._objects.all("jobs"):
            if "deletionTimestamp" in document["metadata"]:
                self._end(document)
            elif document["spec"].get("suspend") and self.admits and _QUEUE in _labels(document):
                self.suspend(document["metadata"]["name"], suspend=False)
            else:
                self._job(document)

    def suspend(self, name: str, *, suspend: bool) -> None:
        """Take a place in a queue away, or give it."""
        self._objects.change("jobs", name, lambda document: document["spec"].update(suspend=suspend))

    def _end(self, job: Document) -> None:
        """What belongs to a job ends before it does."""
        owned = {kind: self._owned(kind, job) for kind in ("pods", "services")}
        for kind, documents in owned.items():
            self._delete(kind, documents)
        if not any(owned.values()):
            self._objects.remove("jobs", job["metadata"]["name"])

    def _job(self, job: Document) -> None:
        name, made = job["metadata"]["name"], self._made.setdefault(job["metadata"]["uid"], set())
        pods = self._owned("pods", job)
        if job["spec"].get("suspend"):
            self._delete("pods", pods)
            made.clear()
        elif holds(job, "Complete") or holds(job, "Failed"):
            return
        elif target := holds(job, "FailureTarget"):
            if all(map(has_ended, pods)):
                self._say(name, "Failed", target["reason"], target["message"])
        elif failure := _failure(job, pods) or _lost(made, pods):
            self._say(name, "FailureTarget", *failure)
            self._delete("pods", [pod for pod in pods if not has_ended(pod)])
        elif [pod["status"]["phase"] for pod in pods] == ["Succeeded"] * job["spec"]["completions"]:
            self._say(name, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        else:
            for index in sorted(set(range(job["spec"]["completions"])) - made):
                self._objects.create("pods", job["metadata"]["namespace"], _pod(job, index))
                made.add(index)

    def _owned(self, plural: str, owner: Document) -> list[Document]:
        uid = owner["metadata"]["uid"]
        return self._objects.all(
            plural, lambda one: any(above["uid"] == uid for above in one["metadata"].get("ownerReferences", []))
        )

    def _delete(self, plural: str, documents: list[Document]) -> None:
        for document in documents:
            if "deletionTimestamp" not in document["metadata"]:
                grace_s = document["spec"].get("terminationGracePeriodSeconds", 30) if plural == "pods" else 0.0
                self._objects.delete(plural, document["metadata"]["name"], grace_s=grace_s)

    def _say(self, name: str, kind: str, reason: str, message: str = "") -> None:
        self._objects.change("jobs", name, lambda document: condition(document, kind, reason, message))


def _failure(job: Document, pods: list[Document]) -> tuple[str, str] | None:
    """Why a Job without retries fails: by a rule of its policy for failed pods, else by the first of these."""
    rules = enumerate(job["spec"].get("podFailurePolicy", {}).get("rules", []))
    wanted = [(number, one["type"]) for number, rule in rules for one in rule.get("onPodConditions", [])]
    for pod in pods:
        if pod["status"]["phase"] == "Failed":
            where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for number, kind in wanted:
                if holds(pod, kind):
                    told = f"Pod {where} has condition {kind} matching FailJob rule at index {number}"
                    return "PodFailurePolicy", told
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def _lost(made: set[int], pods: list[Document]) -> tuple[str, str] | None:
    """A pod that is gone without having ended counts as failed, and none is made in its place."""
    missing = made - {int(pod["metadata"]["annotations"][INDEX]) for pod in pods}
    return ("BackoffLimitExceeded", f"pods of {missing} are gone") if missing else None


def _labels(document: Document) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def _pod(job: Document, index: int) -> Document:
    template, name = job["spec"]["template"], job["metadata"]["name"]
    metadata = template.get("metadata", {})
    own = {"batch.kubernetes.io/job-name": name, "job-name": name, INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-{index}-",
            "labels": {**metadata.get("labels", {}), **own},
            "annotations": {**metadata.get("annotations", {}), INDEX: str(index)},
            "ownerReferences": [_owner(job)],
        },
        "spec": {**template["spec"], "hostname": f"{name}-{index}"},
        "status": {"phase": "Pending"},
    }


def _owner(document: Document) -> dict[str, Any]:
    own = {name: document["metadata"][name] for name in ("name", "uid")}
    kind = {name: document[name] for name in ("apiVersion", "kind")}
    return {**kind, **own, "controller": True, "blockOwnerDeletion": True}
