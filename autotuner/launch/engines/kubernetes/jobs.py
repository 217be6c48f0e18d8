"""What is known of the jobs of an engine: a copy that watches keep, and what was seen of objects that are gone."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus
from autotuner.launch.engines.kubernetes.api import Gone, Kind, KubernetesApi, Stream
from autotuner.launch.engines.kubernetes.objects import JOB_LABEL
from autotuner.launch.engines.kubernetes.states import JobState, PodState, job_state, judged, pod_state


@dataclass(slots=True)
class _Record:
    """A job, its pods by name, and what was seen of it that no object says any longer."""

    objects: dict[Kind, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, PodState] = field(default_factory=dict)
    num_nodes: int = 0
    begun: bool = False
    is_cancelled: bool = False
    is_gone: bool = False

    @property
    def state(self) -> JobState:
        return job_state(*self.objects.values())

    @property
    def newest(self) -> list[PodState]:
        """One pod for each index."""
        by_index = {pod.index: pod for pod in sorted(self.pods.values(), key=lambda pod: pod.created_at)}
        return [by_index[index] for index in sorted(by_index)]


class Jobs:
    """The copy; may be asked and told from any thread."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()

    def replaced(self, kind: Kind, documents: list[dict[str, Any]]) -> None:
        """These are all objects of the kind that there are; others of which something is known are gone."""
        with self._lock:
            present = {document["metadata"]["name"] for document in documents}
            for record in self._records.values():
                self._drop(record, kind, present)
            for document in documents:
                self._take(kind, document)

    def changed(self, kind: Kind, document: dict[str, Any]) -> None:
        """That object is new, or another than it was."""
        with self._lock:
            self._take(kind, document)

    def deleted(self, kind: Kind, document: dict[str, Any]) -> None:
        """That object is gone."""
        with self._lock:
            record = self._record(document)
            if record is None:
                return
            if kind == "Pod":
                self._take(kind, document)
                name = document["metadata"]["name"]
                record.pods[name] = _gone(record, record.pods[name])
            else:
                record.is_gone = True

    def status(self, name: str, *, now: float, start_timeout_s: float) -> JobStatus | None:
        """Where the job stands; None where nothing was heard of it yet."""
        with self._lock:
            record = self._records.get(name)
            if record is None or not record.objects:
                return None
            return _status(record, now, start_timeout_s)

    def pod(self, name: str, index: int) -> PodState | None:
        """The pod that is that node of the job."""
        with self._lock:
            record = self._records.get(name)
            return next((pod for pod in record.newest if pod.index == index), None) if record else None

    def cancel(self, name: str) -> None:
        """What happens to the pods of that job from now on was asked for."""
        with self._lock:
            self._records.setdefault(name, _Record()).is_cancelled = True

    def forget(self, name: str) -> None:
        """Know nothing of it, whatever is heard."""
        with self._lock:
            self._records.pop(name, None)
            self._forgotten.add(name)

    def _record(self, document: dict[str, Any]) -> _Record | None:
        name = (document["metadata"].get("labels") or {}).get(JOB_LABEL)
        if name is None or name in self._forgotten:
            return None
        return self._records.setdefault(name, _Record())

    def _take(self, kind: Kind, document: dict[str, Any]) -> None:
        record = self._record(document)
        if record is None:
            return
        if kind == "Pod":
            pod, before = pod_state(document), record.pods.get(document["metadata"]["name"])
            told_to_leave = pod.leaves_by is not None and (before is None or before.leaves_by is None)
            if before is not None and before.has_ended:
                pod = replace(pod, leaves_by=before.leaves_by)  # what ends is tidied up later
            was_deleted = (before is not None and before.was_deleted) or (told_to_leave and _is_alone(record, pod))
            record.pods[pod.name] = replace(pod, was_deleted=was_deleted)
            started = sum(one.main.has_started for one in record.newest)
            record.begun = record.begun or started >= record.num_nodes > 0
        else:
            record.objects[kind] = document
            record.num_nodes = num_nodes_of(document)
            record.is_gone = False

    def _drop(self, record: _Record, kind: Kind, present: set[str]) -> None:
        if kind == "Pod":
            for name in record.pods.keys() - present:
                record.pods[name] = _gone(record, record.pods[name])
        elif kind in record.objects and record.objects[kind]["metadata"]["name"] not in present:
            record.is_gone = True


def num_nodes_of(document: dict[str, Any]) -> int:
    """Pods of a Job, or of the one Job of a JobSet."""
    spec = document["spec"]
    if "replicatedJobs" in spec:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    return int(spec.get("completions", 1))


def _gone(record: _Record, pod: PodState) -> PodState:
    was_deleted = pod.was_deleted or (pod.leaves_by is None and _is_alone(record, pod))
    return replace(pod, was_deleted=was_deleted, is_gone=True)


def _is_alone(record: _Record, pod: PodState) -> bool:
    """Whether a pod that leaves leaves a job that goes on, though nobody asked for that and no other pod failed."""
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
        return JobStatus(phase=EngineJobPhase.LOST, detail="somebody deleted the job while it was there")
    return judged(state, pods, record.num_nodes, now=now, start_timeout_s=start_timeout_s, begun=record.begun)


# Keeps a copy of objects of the cluster up to date, by a list and a watch.

_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 15.0

_log = structlog.get_logger(__name__)


class Copy(Protocol):
    """Who is told of objects."""

    def replaced(self, kind: Kind, documents: list[dict[str, Any]]) -> None:
        """These are all that there are now."""
        ...

    def changed(self, kind: Kind, document: dict[str, Any]) -> None:
        """That one is new, or another than it was."""
        ...

    def deleted(self, kind: Kind, document: dict[str, Any]) -> None:
        """That one is gone; this is how it was last."""
        ...


class Watching:
    """A thread that lists all objects of a kind once, then hears of each change.

    A watch that ends is opened again at the version it had reached; where the cluster has forgotten that one (410
    Gone), all is listed again.

    Args:
        copy: Told from this thread.

    Attributes:
        has_listed: Set once the copy holds all objects.
        failure: Why the copy may be out of date; empty while it is not.
    """

    def __init__(self, api: KubernetesApi, kind: Kind, selector: str, copy: Copy) -> None:
        self._api = api
        self._kind = kind
        self._selector = selector
        self._copy = copy
        self._version = ""
        self._stopped = threading.Event()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind}", daemon=True)
        self.has_listed = threading.Event()
        self.failure = ""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stopped.set()
        if self._stream is not None:
            self._stream.close()
        self._thread.join()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stopped.is_set():
            try:
                if self._version:
                    self._follow()
                else:
                    self._list()
                self.failure, retry_s = "", _FIRST_RETRY_S
            except Gone:
                self._version = ""
            except Exception as error:  # the thread must go on, and those who ask hear of it
                if not isinstance(error, (EngineUnavailable, EngineRefused)):
                    self._version = ""
                    _log.exception("kubernetes.watch_failed", kind=self._kind)
                self.failure = f"{error}" or repr(error)
                self._stopped.wait(retry_s)
                retry_s = min(2 * retry_s, _LAST_RETRY_S)

    def _list(self) -> None:
        documents, version = self._api.list(self._kind, self._selector)
        self._copy.replaced(self._kind, documents)
        self._version = version
        self.has_listed.set()

    def _follow(self) -> None:
        """Hear of what changes until the watch ends."""
        with self._api.watch(self._kind, self._selector, self._version) as self._stream:
            self.failure = ""
            for line in self._stream if not self._stopped.is_set() else ():
                if not line.endswith(b"\n"):
                    return  # torn in the middle of an event, which the next watch begins with
                self._version = self._heard(json.loads(line))

    def _heard(self, event: dict[str, Any]) -> str:
        """The version after that event."""
        document = event["object"]
        match event["type"]:
            case "ERROR":
                told = f"Kubernetes ended the watch: {document.get('message')}"
                raise Gone(told) if document.get("code") == 410 else EngineUnavailable(told)
            case "BOOKMARK":
                pass
            case "DELETED":
                self._copy.deleted(self._kind, document)
            case _:
                self._copy.changed(self._kind, document)
        return str(document["metadata"]["resourceVersion"])
