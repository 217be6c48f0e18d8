"""KubernetesEngine: jobs as Indexed Jobs or JobSets of a namespace."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from autotuner.core.cluster import Cluster
from autotuner.core.node_line import NodeEnd, node_line
from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus, check_exist
from autotuner.launch.engines.kubernetes.api import Kind, KubernetesApi, PodLog
from autotuner.launch.engines.kubernetes.jobs import Jobs, Watching, num_nodes_of
from autotuner.launch.engines.kubernetes.objects import (
    CONTAINER,
    ENGINE_LABEL,
    JOB_LABEL,
    check_pod,
    job,
    job_set,
    service,
)
from autotuner.launch.engines.kubernetes.settings import KubernetesSettings
from autotuner.launch.engines.kubernetes.states import job_state

_LISTED_S = 10.0
"""What the first list may take."""

_LEAVING_S = 20.0
"""What a job that was cancelled gets to be gone beyond what its pods get to leave: then they count as out of reach."""

_LAST_WORDS_S = 5.0
"""What the logs of pods that are gone get to arrive."""

_FIRST_LOOK_S = 0.1
_LAST_LOOK_S = 1.0

_NODE_ENDED = b'\n#autotuner {"type":"node",'

RIGHTS = {
    ("batch", "jobs", ""): ("create", "get", "list", "watch", "delete"),
    ("", "services", ""): ("create",),
    ("", "pods", ""): ("list", "watch"),
    ("", "pods", "log"): ("get",),
}
"""What the service has to be allowed in its namespace: verbs by API group, resource and subresource."""

JOBSET_RIGHTS = {("jobset.x-k8s.io", "jobsets", ""): ("create", "get", "list", "watch", "delete")}
"""What it has to be allowed beside them, for JobSets."""

KUEUE_RIGHTS = {("kueue.x-k8s.io", "localqueues", ""): ("list",)}
"""Rights that only ``check`` uses, to look for queues; jobs run without them."""

_log = structlog.get_logger(__name__)


class KubernetesEngine:
    """Starts jobs in a namespace of a Kubernetes cluster, and says how they stand.

    The cluster is asked only once somebody asks the engine: then a list and a watch keep a copy of jobs and pods, and a
    thread follows the log of each pod that is read.

    Args:
        name: What the operator calls it; a label of all that it makes.
        settings: The operator's.
        clock: Epoch seconds.

    Raises:
        InvalidInput: A table is not in Kubernetes' words, or the kubeconfig says nowhere where the cluster is.
    """

    def __init__(self, name: str, settings: KubernetesSettings, clock: Callable[[], float] = time.time) -> None:
        check_pod(settings)
        self._name = name
        self._settings = settings
        self._clock = clock
        self._kind: Kind = "JobSet" if settings.workload == "jobset" else "Job"
        self._api = KubernetesApi(settings)
        self._jobs = Jobs()
        self._watches: list[Watching] = []
        self._logs: dict[tuple[str, int], PodLog] = {}
        self._lock = threading.Lock()

    def refuses(self, cluster: Cluster) -> str | None:
        """Kueue needs a queue, and Kubernetes a name for accelerators that are none of its own."""
        if self._settings.kueue and not cluster.queue:
            return f"jobs of the engine {self._name} wait in a local queue of Kueue, and {cluster.name} names none"
        return None

    def check(self, queues: Sequence[str] = ()) -> str:
        """Return version, namespace and kind of job.

        Raises:
            EngineUnavailable: Nothing answers, or a right is missing, which is named.
            EngineRefused: The namespace does not exist, or a local queue of Kueue.
        """
        version = self._api.version()
        if (namespaces := self._api.namespaces()) is not None:
            check_exist("namespace", (self._settings.namespace,), namespaces)
        if self._kind == "JobSet" and not self._api.has_job_sets():
            raise EngineUnavailable(f"Kubernetes {version} has no JobSet; set workload to job, or install it")
        rights = RIGHTS | (JOBSET_RIGHTS if self._kind == "JobSet" else {})
        missing = [
            f"{verb} {'/'.join(filter(None, what[1:]))}"
            for what, verbs in rights.items()
            for verb in verbs
            if not self._api.may(verb, *what)
        ]
        if missing:
            raise EngineUnavailable(f"no right to {', '.join(missing)} in namespace {self._settings.namespace}")
        answer = f"Kubernetes {version}, namespace {self._settings.namespace}, {self._kind}s"
        if not (self._settings.kueue and queues):
            return answer
        if (local_queues := self._api.local_queues()) is None:
            return f"{answer}; no right to list localqueues, so its queues were not looked for"
        check_exist(f"local queue of Kueue in namespace {self._settings.namespace} called", queues, local_queues)
        return answer

    def submit(self, order: JobOrder) -> str:
        """Make the job, and what gives its pods names."""
        make = job_set if self._kind == "JobSet" else job
        made = self._api.create(self._kind, make(self._name, self._settings, order))
        if not self._is_ours(made):
            raise EngineRefused(f"there is a {self._kind} {order.name} that is none of the engine {self._name}")
        if "deletionTimestamp" in made["metadata"]:
            raise EngineUnavailable(f"a {self._kind} {order.name} is just being deleted")
        self._name_pods(made)
        return f"{self._kind}/{order.name}"

    def find(self, name: str) -> str | None:
        """The handle of the job of that name; one whose maker was interrupted is made whole."""
        found = self._api.get(self._kind, name)
        if found is None or "deletionTimestamp" in found["metadata"] or not self._is_ours(found):
            return None
        self._name_pods(found)
        return f"{self._kind}/{name}"

    def look(self, handle: str) -> JobStatus:
        """How the job stands, by the copy that a watch keeps."""
        self._watch()
        if failure := next((watch.failure for watch in self._watches if watch.failure), ""):
            raise EngineUnavailable(failure)
        kind, name = _parts(handle)
        timeout_s = self._settings.start_timeout_s
        status = self._jobs.status(name, now=self._clock(), start_timeout_s=timeout_s)
        if status is None and self._api.get(kind, name) is not None:
            status = JobStatus(phase=EngineJobPhase.QUEUED, detail="just made")
        return status or JobStatus(phase=EngineJobPhase.LOST, detail=f"the cluster has no {kind} {name}")

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """What the node's container printed, of which a thread keeps a copy once somebody asks."""
        self._watch()
        _, name = _parts(handle)
        with self._lock:
            log = self._logs.get((name, node_rank))
            if log is None:
                pod = self._jobs.pod(name, node_rank)
                if pod is None or not pod.main.has_started:
                    return b""
                log = self._logs[name, node_rank] = self._new_log(name, node_rank, pod.name)
        return log.read(offset)

    def cancel(self, handle: str) -> bool:
        """Delete the job, its pods first, and wait until they are gone."""
        kind, name = _parts(handle)
        self._jobs.cancel(name)
        self._api.delete(kind, name)
        deadline, wait_s = time.monotonic() + self._settings.grace_s + _LEAVING_S, _FIRST_LOOK_S
        while not self._is_gone(kind, name):
            if time.monotonic() > deadline:
                return False
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LAST_LOOK_S)
        heard_by = time.monotonic() + _LAST_WORDS_S
        for log in self._logs_of(name):
            log.wait(heard_by - time.monotonic())
        return True

    def forget(self, handle: str) -> None:
        """Delete the job, its pods and its name, and know nothing of it any more."""
        kind, name = _parts(handle)
        self._api.delete(kind, name)
        self._jobs.forget(name)
        for log in self._logs_of(name):
            log.stop()
        with self._lock:
            self._logs = {key: log for key, log in self._logs.items() if key[0] != name}

    def close(self) -> None:
        """End all threads and connections."""
        with self._lock:
            logs, watches = list(self._logs.values()), self._watches
            self._logs, self._watches = {}, []
        for log in logs:
            log.stop()
        for watch in watches:
            watch.stop()
        self._api.close()

    def _watch(self) -> None:
        """Have the watches run, and the first list be there."""
        with self._lock:
            if not self._watches:
                kinds: tuple[Kind, ...] = ("Job", "JobSet", "Pod") if self._kind == "JobSet" else ("Job", "Pod")
                selector = f"{ENGINE_LABEL}={self._name}"
                self._watches = [Watching(self._api, kind, selector, self._jobs) for kind in kinds]
                for watch in self._watches:
                    watch.start()
        deadline = time.monotonic() + _LISTED_S
        for watch in self._watches:
            if not watch.has_listed.wait(max(0.0, deadline - time.monotonic())):
                raise EngineUnavailable(watch.failure or "Kubernetes does not answer")

    def _name_pods(self, made: dict[str, Any]) -> None:
        """Make the Service of a Job whose pods have to find each other; JobSet makes its own."""
        if self._kind == "JobSet" or num_nodes_of(made) == 1 or job_state(made).is_over:
            return
        whole = {"apiVersion": "batch/v1", "kind": "Job", **made}
        self._api.create_service(service(self._name, made["metadata"]["name"], whole))

    def _is_ours(self, made: dict[str, Any]) -> bool:
        return (made["metadata"].get("labels") or {}).get(ENGINE_LABEL) == self._name

    def _logs_of(self, name: str) -> list[PodLog]:
        with self._lock:
            return [log for key, log in self._logs.items() if key[0] == name]

    def _new_log(self, name: str, node_rank: int, pod: str) -> PodLog:
        def is_over() -> bool:
            state = self._jobs.pod(name, node_rank)
            return state is None or state.has_ended or state.main.exit_code is not None

        return PodLog(partial(self._api.log, pod, CONTAINER), is_over, partial(self._last_words, name, node_rank))

    def _last_words(self, name: str, node_rank: int, printed: bytes) -> bytes:
        """What the node could not say itself, because the kernel killed all of its container for want of memory."""
        pod = self._jobs.pod(name, node_rank)
        if pod is None or pod.main.reason != "OOMKilled" or _NODE_ENDED in printed:
            return b""
        return b"\n" + node_line(NodeEnd(node=node_rank, exit_code=-signal.SIGKILL, oom_killed=True))

    def _is_gone(self, kind: Kind, name: str) -> bool:
        with suppress(EngineUnavailable):
            return self._api.get(kind, name) is None and not self._api.list("Pod", f"{JOB_LABEL}={name}")[0]
        return False


def _parts(handle: str) -> tuple[Kind, str]:
    kind, _, name = handle.partition("/")
    return ("JobSet" if kind == "JobSet" else "Job"), name
