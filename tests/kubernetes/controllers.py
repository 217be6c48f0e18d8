"""What makes pods of Jobs, Jobs of JobSets, and ends what belongs to objects that end."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.kubernetes.objects import Document, Objects, condition, holds, now_text

_INDEX = "batch.kubernetes.io/job-completion-index"
_FOREGROUND = "foregroundDeletion"


class Controllers:
    """One pass over all objects at a time.

    Args:
        objects: Of the cluster.

    Attributes:
        admits: Whether Kueue lets suspended jobs of its queues start.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.admits = True
        self._made: dict[str, set[int]] = {}

    def run(self) -> None:
        """Bring everything a step nearer to what is asked for."""
        for job_set in self._objects.all("jobsets"):
            self._job_set(job_set)
        for job in self._objects.all("jobs"):
            self._job(job)
        for plural in ("jobsets", "jobs"):
            for owner in self._objects.all(plural):
                if _FOREGROUND in owner["metadata"].get("finalizers", []):
                    self._end_owned(plural, owner)
        self._collect()

    # ------------------------------------------------------------------ Jobs
    def _job(self, job: Document) -> None:
        name, spec = job["metadata"]["name"], job["spec"]
        if "deletionTimestamp" in job["metadata"]:
            return
        pods = self._pods(job)
        if spec.get("suspend"):
            self._suspended(job, pods)
            return
        if holds(job, "Suspended"):
            self._say("jobs", name, "Suspended", "JobResumed", status="False")
        if holds(job, "Complete") or holds(job, "Failed"):
            return
        if holds(job, "FailureTarget"):
            self._failing(job, pods)
            return
        if "startTime" not in job.get("status", {}):
            self._objects.change("jobs", name, lambda document: document.setdefault("status", {}).update(_begun()))
        if failure := _failure(job, pods):
            self._say("jobs", name, "FailureTarget", *failure)
            self._delete([pod for pod in pods.values() if not _has_ended(pod)])
            return
        if all(pods.get(index, {}).get("status", {}).get("phase") == "Succeeded" for index in range(_size(job))):
            self._say("jobs", name, "SuccessCriteriaMet", "CompletionsReached")
            self._say("jobs", name, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")
            return
        self._make_pods(job, pods)

    def _make_pods(self, job: Document, pods: dict[int, Document]) -> None:
        """One of each index; one that is gone without having ended counts as failed, and none is made in its place."""
        name = job["metadata"]["name"]
        made = self._made.setdefault(job["metadata"]["uid"], set())
        for index in sorted(set(range(_size(job))) - made):
            self._objects.create("pods", job["metadata"]["namespace"], _pod(job, index))
        if missing := made - pods.keys():
            message = f"pods of {missing} are gone"
            self._say("jobs", name, "FailureTarget", "BackoffLimitExceeded", message)
            self._delete([pod for pod in pods.values() if not _has_ended(pod)])
        made |= set(range(_size(job)))

    def _failing(self, job: Document, pods: dict[int, Document]) -> None:
        """A Job has failed once all of its pods have ended."""
        if all(_has_ended(pod) for pod in pods.values()):
            target = next(one for one in job["status"]["conditions"] if one["type"] == "FailureTarget")
            self._say("jobs", job["metadata"]["name"], "Failed", target["reason"], target["message"])

    def _suspended(self, job: Document, pods: dict[int, Document]) -> None:
        self._delete(list(pods.values()))
        self._say("jobs", job["metadata"]["name"], "Suspended", "JobSuspended", "Job suspended")
        self._made.pop(job["metadata"]["uid"], None)
        if self.admits and "kueue.x-k8s.io/queue-name" in (job["metadata"].get("labels") or {}) and not pods:
            self._objects.change("jobs", job["metadata"]["name"], _resumed)

    def _pods(self, job: Document) -> dict[int, Document]:
        uid = job["metadata"]["uid"]
        return {
            int(pod["metadata"]["annotations"][_INDEX]): pod
            for pod in self._objects.all("pods", lambda pod: _is_owned(pod, uid))
        }

    def _delete(self, pods: list[Document]) -> None:
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
                self._objects.delete("pods", pod["metadata"]["name"], grace_s=grace_s)

    # ------------------------------------------------------------------ JobSets
    def _job_set(self, job_set: Document) -> None:
        """One Job for each replicated one, a Service, and conditions as these have them."""
        metadata, spec = job_set["metadata"], job_set["spec"]
        if "deletionTimestamp" in metadata:
            return
        if spec.get("suspend") and self.admits and "kueue.x-k8s.io/queue-name" in (metadata.get("labels") or {}):
            self._objects.change("jobsets", metadata["name"], _resumed)
        for replicated in spec["replicatedJobs"]:
            child = _child(job_set, replicated)
            existing = self._objects.get("jobs", child["metadata"]["name"])
            if existing is None:
                self._objects.create("jobs", metadata["namespace"], child)
                self._objects.create("services", metadata["namespace"], _service(job_set))
                continue
            suspend = bool(spec.get("suspend"))
            self._objects.change("jobs", existing["metadata"]["name"], partial(_suspend, suspend=suspend))
            if holds(existing, "Complete"):
                self._say("jobsets", metadata["name"], "Completed", "AllJobsCompleted")
            if holds(existing, "Failed"):
                self._say("jobsets", metadata["name"], "Failed", "FailedJobs", "jobset failed due to one or more jobs")

    # ------------------------------------------------------------------ what belongs to others
    def _end_owned(self, plural: str, owner: Document) -> None:
        """What a foreground deletion waits for ends first."""
        uid = owner["metadata"]["uid"]
        owned = [
            (kind, found)
            for kind in ("jobs", "pods", "services")
            for found in self._objects.all(kind, lambda document: _is_owned(document, uid))
        ]
        for kind, found in owned:
            name = found["metadata"]["name"]
            if kind == "pods":
                self._delete([found])
            elif "deletionTimestamp" not in found["metadata"]:
                self._objects.delete(kind, name, finalizer=_FOREGROUND if kind == "jobs" else "")
        if not owned:
            self._objects.remove(plural, owner["metadata"]["name"])

    def _collect(self) -> None:
        """What belonged to objects that are gone goes too."""
        uids = {one["metadata"]["uid"] for kind in ("jobs", "jobsets") for one in self._objects.all(kind)}
        for kind in ("jobs", "pods", "services"):
            for found in self._objects.all(kind):
                owners = {owner["uid"] for owner in found["metadata"].get("ownerReferences", [])}
                if owners and not owners & uids:
                    if kind == "pods":
                        self._delete([found])
                    else:
                        self._objects.remove(kind, found["metadata"]["name"])

    def _say(self, plural: str, name: str, kind: str, reason: str, message: str = "", status: str = "True") -> None:
        self._objects.change(plural, name, lambda document: condition(document, kind, reason, message, status))


def _failure(job: Document, pods: dict[int, Document]) -> tuple[str, str] | None:
    """Why a Job without retries fails: by a rule of its policy for failed pods, else by the first of these."""
    for pod in pods.values():
        if pod.get("status", {}).get("phase") == "Failed":
            for number, rule in enumerate(job["spec"].get("podFailurePolicy", {}).get("rules", [])):
                for wanted in rule.get("onPodConditions", []):
                    if rule["action"] == "FailJob" and holds(pod, wanted["type"]):
                        where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                        told = f"Pod {where} has condition {wanted['type']} matching FailJob rule at index {number}"
                        return "PodFailurePolicy", told
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return None


def _pod(job: Document, index: int) -> Document:
    template, name = job["spec"]["template"], job["metadata"]["name"]
    metadata = template.get("metadata", {})
    own = {"batch.kubernetes.io/job-name": name, "job-name": name, _INDEX: str(index)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-{index}-",
            "labels": {**metadata.get("labels", {}), **own},
            "annotations": {**metadata.get("annotations", {}), _INDEX: str(index)},
            "ownerReferences": [_owner(job)],
        },
        "spec": {**template["spec"], "hostname": f"{name}-{index}"},
        "status": {"phase": "Pending"},
    }


def _child(job_set: Document, replicated: Document) -> Document:
    name = job_set["metadata"]["name"]
    template: Document = replicated["template"]
    own = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"]}
    metadata, spec = template.get("metadata", {}), template["spec"]
    pod = spec["template"]
    pod_labels = {**pod.get("metadata", {}).get("labels", {}), **own}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name}-{replicated['name']}-0",
            "labels": {**metadata.get("labels", {}), **own},
            "ownerReferences": [_owner(job_set)],
        },
        "spec": {
            **spec,
            "suspend": bool(job_set["spec"].get("suspend")),
            "template": {
                "metadata": {**pod.get("metadata", {}), "labels": pod_labels},
                "spec": {**pod["spec"], "subdomain": job_set["spec"]["network"]["subdomain"]},
            },
        },
    }


def _service(job_set: Document) -> Document:
    name = job_set["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job_set["spec"]["network"]["subdomain"], "ownerReferences": [_owner(job_set)]},
        "spec": {"clusterIP": "None", "selector": {"jobset.sigs.k8s.io/jobset-name": name}},
    }


def _owner(document: Document) -> dict[str, Any]:
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": document["metadata"]["name"],
        "uid": document["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_owned(document: Document, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in document["metadata"].get("ownerReferences", []))


def _size(job: Document) -> int:
    return int(job["spec"]["completions"])


def _has_ended(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _begun() -> dict[str, Any]:
    return {"startTime": now_text()}


def _resumed(document: Document) -> None:
    document["spec"]["suspend"] = False


def _suspend(document: Document, *, suspend: bool) -> None:
    document["spec"]["suspend"] = suspend
