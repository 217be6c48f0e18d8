"""KubernetesEngine: runs each job as an Indexed Job in a namespace of a Kubernetes cluster."""

from __future__ import annotations

import math
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
from autotuner.launch.engines.kubernetes_api import KubernetesApi, PodLog
from autotuner.launch.engines.kubernetes_objects import (
    CONTAINER,
    ENGINE_LABEL,
    JOB_LABEL,
    KubernetesSettings,
    check_pod,
    job,
    service,
)
from autotuner.launch.engines.kubernetes_state import Jobs, job_state, num_nodes_of

_LIST_S = 1.0
"""Maximum age of a list of jobs and pods. Callers that look at several jobs share one request to the cluster."""

_LEAVING_S = 20.0
"""Extra time that a cancelled job gets beyond its pods' grace period. After it, the pods count as out of reach."""

_LAST_WORDS_S = 5.0
"""Seconds to wait for the last output of pods that no longer exist."""

_FIRST_LOOK_S = 0.1
_LAST_LOOK_S = 1.0

_NODE_ENDED = b'\n#autotuner {"type":"node",'

RIGHTS = {
    ("batch", "jobs", ""): ("create", "get", "list", "delete"),
    ("", "services", ""): ("create",),
    ("", "pods", ""): ("list",),
    ("", "pods", "log"): ("get",),
}
"""Rights that the service needs in its namespace: verbs by API group, resource and subresource."""

KUEUE_RIGHTS = {("kueue.x-k8s.io", "localqueues", ""): ("list",)}
"""Rights that only the ``check`` command uses, to list the Kueue queues; jobs run without these rights."""

_log = structlog.get_logger(__name__)


class KubernetesEngine:
    """The engine that runs jobs as Indexed Jobs in one namespace of a Kubernetes cluster.

    The engine sends requests to the cluster only when one of its methods is called. It lists all its jobs and pods at
    most once a second. A thread follows the log of each pod whose output a caller reads.

    Args:
        name: Name of the engine, which is also a label on all objects that it creates.
        settings: The operator's settings.
        clock: Returns epoch seconds.

    Raises:
        InvalidInput: A table of the settings does not fit the Kubernetes schema, or the kubeconfig names no cluster.
    """

    def __init__(self, name: str, settings: KubernetesSettings, clock: Callable[[], float] = time.time) -> None:
        check_pod(settings)
        self._name = name
        self._settings = settings
        self._clock = clock
        self._api = KubernetesApi(settings)
        self._jobs = Jobs()
        self._listed_at = -math.inf
        self._listing = threading.Lock()
        self._logs: dict[tuple[str, int], PodLog] = {}
        self._lock = threading.Lock()

    def refuses(self, cluster: Cluster) -> str | None:
        """Return the reason why no job can start, or None.

        The only reason is that jobs must wait in queues of Kueue and the cluster names no queue.
        """
        if self._settings.kueue and not cluster.queue:
            return (
                f"jobs of the engine {self._name} wait in a local queue of Kueue, but the cluster {cluster.name} names "
                "no queue; set the field queue of the cluster"
            )
        return None

    def check(self, queues: Sequence[str] = ()) -> str:
        """Check that Kubernetes answers, and return its version and the namespace as a text for people.

        Raises:
            EngineUnavailable: Kubernetes does not answer, or the account lacks a right, which the error names.
            EngineRefused: The namespace or a local queue of Kueue does not exist.
        """
        version = self._api.version()
        if (namespaces := self._api.namespaces()) is not None:
            check_exist("namespace", (self._settings.namespace,), namespaces)
        missing = [
            f"{verb} {'/'.join(filter(None, what[1:]))}"
            for what, verbs in RIGHTS.items()
            for verb in verbs
            if not self._api.may(verb, *what)
        ]
        if missing:
            raise EngineUnavailable(
                f"no permission to {', '.join(missing)} in namespace {self._settings.namespace}; ask the "
                "administrator of the cluster for a Role with these rights"
            )
        answer = f"Kubernetes {version}, namespace {self._settings.namespace}, Jobs"
        if not (self._settings.kueue and queues):
            return answer
        if (local_queues := self._api.local_queues()) is None:
            return f"{answer}; no permission to list localqueues, so the queues were not checked"
        check_exist(f"local queue of Kueue in namespace {self._settings.namespace} called", queues, local_queues)
        return answer

    def submit(self, order: JobOrder) -> str:
        """Create the Job and the Service that gives the Job's pods their names. Return the handle of the job."""
        made = self._api.create(job(self._name, self._settings, order))
        if not self._is_ours(made):
            raise EngineRefused(
                f"a Job {order.name} already exists and does not belong to the engine {self._name}; delete "
                "that Job, or use another namespace"
            )
        if "deletionTimestamp" in made["metadata"]:
            raise EngineUnavailable(f"an older Job {order.name} is still being deleted; the engine tries again later")
        self._name_pods(made)
        return f"Job/{order.name}"

    def find(self, name: str) -> str | None:
        """Return the handle of the Job with that name, or None if it does not exist.

        If an interrupted submission created the Job but not its Service, this method creates the Service.
        """
        found = self._api.get(name)
        if found is None or "deletionTimestamp" in found["metadata"] or not self._is_ours(found):
            return None
        self._name_pods(found)
        return f"Job/{name}"

    def look(self, handle: str) -> JobStatus:
        """Return the state of the job: queued, running, ended or lost.

        It is computed from the latest lists of jobs and pods, and from facts about pods that only earlier lists
        contained.
        """
        self._list()
        name = _name_of(handle)
        timeout_s = self._settings.start_timeout_s
        status = self._jobs.status(name, now=self._clock(), start_timeout_s=timeout_s)
        if status is None and self._api.get(name) is not None:
            status = JobStatus(phase=EngineJobPhase.QUEUED, detail="the Job was just created")
        return status or JobStatus(phase=EngineJobPhase.LOST, detail=f"the cluster has no Job {name}")

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the bytes that the node's container has printed after the first ``offset`` bytes.

        The first call starts a thread that keeps a copy of the container's log.
        """
        self._list()
        name = _name_of(handle)
        with self._lock:
            log = self._logs.get((name, node_rank))
            if log is None:
                pod = self._jobs.pod(name, node_rank)
                if pod is None or not pod.main.has_started:
                    return b""
                log = self._logs[name, node_rank] = self._new_log(name, node_rank, pod.name)
        return log.read(offset)

    def cancel(self, handle: str) -> bool:
        """Delete the pods of the Job and then the Job, and wait until they are gone.

        Return False if that takes too long.
        """
        name = _name_of(handle)
        self._jobs.cancel(name)
        self._api.delete(name)
        deadline, wait_s = time.monotonic() + self._settings.grace_s + _LEAVING_S, _FIRST_LOOK_S
        while not self._is_gone(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LAST_LOOK_S)
        self._list(max_age_s=0.0)  # logs end when their pods are gone
        heard_by = time.monotonic() + _LAST_WORDS_S
        for log in self._logs_of(name):
            log.wait(heard_by - time.monotonic())
        return True

    def forget(self, handle: str) -> None:
        """Delete the Job with its pods, its Service, and the copies of its logs."""
        name = _name_of(handle)
        self._api.delete(name)
        self._jobs.forget(name)
        for log in self._logs_of(name):
            log.stop()
        with self._lock:
            self._logs = {key: log for key, log in self._logs.items() if key[0] != name}

    def close(self) -> None:
        """End the threads that follow logs, and close all connections."""
        with self._lock:
            logs, self._logs = list(self._logs.values()), {}
        for log in logs:
            log.stop()
        self._api.close()

    def _list(self, *, max_age_s: float = _LIST_S) -> None:
        """Read all jobs and pods of this engine, unless the last list is younger than ``max_age_s``."""
        with self._listing:
            if time.monotonic() - self._listed_at < max_age_s:
                return
            selector = f"{ENGINE_LABEL}={self._name}"
            try:
                pods = self._api.list("Pod", selector)
                jobs = self._api.list("Job", selector)
            except EngineRefused as error:  # other requests were allowed to list them
                raise EngineUnavailable(str(error)) from error
            self._jobs.listed(jobs, pods)
            self._listed_at = time.monotonic()

    def _name_pods(self, made: dict[str, Any]) -> None:
        """Create the Service for a Job whose pods have to find each other by name."""
        if num_nodes_of(made) == 1 or job_state(made).is_over:
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
        """Return the report of a node's end for a node that the kernel killed because it lacked memory.

        Empty if the node was not killed, or if it reported its own end.
        """
        pod = self._jobs.pod(name, node_rank)
        if pod is None or pod.main.reason != "OOMKilled" or _NODE_ENDED in printed:
            return b""
        return b"\n" + node_line(NodeEnd(node=node_rank, exit_code=-signal.SIGKILL, oom_killed=True))

    def _is_gone(self, name: str) -> bool:
        with suppress(EngineUnavailable):
            return self._api.get(name) is None and not self._api.list("Pod", f"{JOB_LABEL}={name}")
        return False


def _name_of(handle: str) -> str:
    return handle.removeprefix("Job/")
