"""RayEngine: submits each trial through Ray's Jobs API; the job's driver reserves the nodes in a placement group."""

from __future__ import annotations

import base64
import json
import shlex
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from autotuner.core import codec
from autotuner.core.cluster import Cluster
from autotuner.core.trial import EngineJobPhase
from autotuner.host.machine_facts import IMAGE
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus, check_exist
from autotuner.launch.engines.ray_api import JobLog, JobsApi, JobState, RayJob, RaySettings

_DRIVER = "autotuner.trials.process.ray_driver"
_ORDER = "AUTOTUNER_RAY_ORDER"
_MARK = "autotuner_mark"
"""Key in a job's metadata. Its value identifies our job among others of the same name, and our lines in the job's
log."""

_MOST_ORDER_BYTES = 100_000
"""Maximum size of an order. The kernel limits a variable to 128 KiB (``MAX_ARG_STRLEN``), and Ray adds text of its
own."""

_STOP_WAIT_S = 20
"""Seconds that Ray waits between asking a driver to end and killing it: more than the driver gives its nodes."""

_FRESH_S = 0.25
"""Minimum seconds for which one read of a log serves all nodes. A slow read serves ten times as long as it took."""

_OUTLAST_S = 8.0
"""Maximum seconds for which nodes outlive a killed driver: Ray kills its actors, and supervisors kill their
children."""

_DELETE_AGAIN_S = 60.0

_POLL_S = 0.2

_STOPPED = "the job was stopped on Ray, but not by the autotuner"


class RayEngine:
    """The engine that runs jobs on a Ray cluster, through its Jobs API.

    A handle consists of the job's name (its submission id in Ray) and a random mark, such as ``t-17-0-1:5f3c02aa``.

    Args:
        name: Name under which the operator registered the engine.
        settings: The operator's settings.
        api: An API client to use instead of one made from the settings.
        monitor_s: Seconds until Ray's own monitor has certainly noticed the end of a job. The monitor checks about once
            a second. If the record of a job is deleted earlier, Ray writes it again, as a failed job.
    """

    def __init__(self, name: str, settings: RaySettings, api: JobsApi | None = None, *, monitor_s: float = 3.0) -> None:
        self._name = name
        self._monitor_s = monitor_s
        self._settings = settings
        self._api = api or JobsApi(settings)
        self._logs: dict[str, _Followed] = {}
        self._forgotten: dict[str, float] = {}
        self._cancelled: set[str] = set()
        self._submitting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def refuses(self, cluster: Cluster) -> str | None:
        """Return the reason why no job can start, or None.

        The only reason is that the settings list resources by queue, but not for the cluster's queue.
        """
        known = self._settings.queue_resources
        if cluster.queue and known and cluster.queue not in known:
            return (
                f"the engine {self._name} has no entry in queue_resources for the queue {cluster.queue}, "
                f"only for {', '.join(known)}"
            )
        return None

    def check(self, queues: Sequence[str] = ()) -> str:
        """Check that Ray answers, and return its version.

        If the settings list resources by queue, each of ``queues`` must be in that list.
        """
        if known := self._settings.queue_resources:
            check_exist("entry in queue_resources for the queue", queues, known)
        return f"Ray {self._api.version()} at {self._settings.address}"

    def submit(self, order: JobOrder) -> str:
        """Submit a Ray job whose driver will start the nodes, and return the handle of the job.

        If a job of that name exists, return that job's handle.

        Raises:
            EngineRefused: Ray does not accept the job, or the job of that name was not started by the autotuner.
        """
        with self._submitting[order.name]:
            if handle := self.find(order.name):
                return handle
            self._make_room(order.name)
            mark = uuid4().hex[:8]
            try:
                self._api.submit(order.name, self._entrypoint(), self._runtime_env(order, mark), {_MARK: mark})
            except EngineUnavailable:
                if handle := self.find(order.name):  # the job was created, only the answer was lost
                    return handle
                raise
            return f"{order.name}:{mark}"

    def find(self, name: str) -> str | None:
        """Return the handle of the job whose submission id is ``name``, or None if Ray has no such job."""
        self._tidy()
        job = self._api.job(name)
        handle = None if job is None or _MARK not in job.metadata else f"{name}:{job.metadata[_MARK]}"
        return None if handle in self._forgotten else handle

    def look(self, handle: str) -> JobStatus:
        """Return the state of the job as its driver (the process that starts its nodes) reports it.

        If the driver has ended without a report of the job's end, the state comes from Ray's record of the job.
        """
        self._tidy()
        job, followed = self._job(handle), self._followed(handle)
        followed.read(self._api, must=job is None or not job.state.is_terminal)
        said = followed.log.status
        if said is not None and said.phase.is_over:
            is_ours = handle in self._cancelled or not followed.log.was_stopped
            return said if is_ours else JobStatus(phase=EngineJobPhase.LOST, detail=_STOPPED)
        if job is None:
            return JobStatus(phase=EngineJobPhase.LOST, detail="Ray does not know this job any more")
        if not job.state.is_terminal:
            return said or JobStatus(phase=EngineJobPhase.QUEUED, detail=job.message)
        return followed.without_driver(job, is_cancelled=handle in self._cancelled)

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the output of a node from byte ``offset`` on. One request for the job's log serves all nodes."""
        followed = self._followed(handle)
        followed.read(self._api)
        return followed.log.printed(node_rank, offset)

    def cancel(self, handle: str) -> bool:
        """Ask Ray to end the driver of the job, which is the process that starts its nodes.

        The driver ends its nodes first. Wait until the driver has ended, and return False if that takes too long. The
        method repeats its request, because Ray ignores a request that arrives just before the driver starts.
        """
        self._cancelled.add(handle)
        deadline = time.monotonic() + self._settings.cancel_s
        while True:
            is_late = time.monotonic() > deadline
            try:
                if self._job(handle) is None or self.look(handle).phase.is_over:
                    return True
                self._api.stop(_name(handle))
            except EngineUnavailable:
                if is_late:
                    raise
            if is_late:
                return False
            time.sleep(_POLL_S)

    def forget(self, handle: str) -> None:
        """Schedule the deletion of Ray's record of the job, for a time when Ray will not write the record again."""
        self._logs.pop(handle, None)
        self._cancelled.discard(handle)
        self._submitting.pop(_name(handle), None)
        self._forgotten.setdefault(handle, time.monotonic() + self._monitor_s)

    def close(self) -> None:
        """Carry out the scheduled deletions of records, and close the connections."""
        last = max(self._forgotten.values(), default=0.0)
        time.sleep(min(max(0.0, last - time.monotonic()), self._monitor_s))
        self._tidy()
        self._api.close()

    # ------------------------------------------------------------------ submitting
    def _entrypoint(self) -> str:
        """Return the shell command that Ray runs: the operator's interpreter and our module, with no user input."""
        return f"exec {shlex.quote(self._settings.python)} -m {_DRIVER}"

    def _runtime_env(self, order: JobOrder, mark: str) -> dict[str, Any]:
        packed = _packed(
            {
                "mark": mark,
                "num_nodes": order.cluster.num_nodes,
                "bundle": self._bundle(order.cluster),
                "python": self._settings.python,
                "task": codec.dumps(order.task),
            }
        )
        if len(packed) > _MOST_ORDER_BYTES:
            rule = (
                f"{len(packed)} bytes, but at most {_MOST_ORDER_BYTES} can be sent to the nodes; put large files "
                "on a disk that all nodes see"
            )
            raise EngineRefused(f"the job with the files of its trainer has {rule}")
        image = self._settings.runtime_env.get("image_uri")
        said = {IMAGE: str(image)} if image else {}
        variables = {**said, **self._settings.env_vars, _ORDER: packed, "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_WAIT_S)}
        return {**self._settings.runtime_env, "env_vars": variables}

    def _bundle(self, cluster: Cluster) -> dict[str, float]:
        """Return the resources that each node gives a job."""
        ranks, settings = cluster.accelerators_per_node, self._settings
        accelerators = {} if cluster.accelerator.kind == "cpu" else {settings.accelerator_resource: float(ranks)}
        of_queue = settings.queue_resources.get(cluster.queue, {})
        return {"CPU": ranks * settings.cpus_per_accelerator, **accelerators, **settings.resources, **of_queue}

    def _make_room(self, name: str) -> None:
        """Make sure that this name is free on Ray.

        Wait for our own forgotten job of this name, and delete it.

        Raises:
            EngineRefused: Somebody else has a job of this name.
        """
        for handle, due in list(self._forgotten.items()):
            if _name(handle) == name:
                time.sleep(max(0.0, due - time.monotonic()))
                self._delete(handle)
        job = self._api.job(name)
        if job is not None and (_MARK in job.metadata or not job.state.is_terminal):
            raise EngineRefused(
                f"a job with the name {name}, which the autotuner did not make, already exists on this Ray; delete it"
            )
        if job is not None:  # Ray remembers the end of a job that it was told to forget
            self._api.delete(name)

    # ------------------------------------------------------------------ following
    def _job(self, handle: str) -> RayJob | None:
        job = self._api.job(_name(handle))
        return job if job is not None and job.metadata.get(_MARK) == _mark(handle) else None

    def _followed(self, handle: str) -> _Followed:
        return self._logs.setdefault(handle, _Followed(handle))

    def _tidy(self) -> None:
        """Delete the forgotten jobs that are due; a job that cannot be deleted now is tried again later."""
        for handle, due in list(self._forgotten.items()):
            if due <= time.monotonic():
                try:
                    self._delete(handle)
                except EngineUnavailable:
                    self._forgotten[handle] = time.monotonic() + _DELETE_AGAIN_S

    def _delete(self, handle: str) -> None:
        job = self._job(handle)
        if job is not None and job.state.is_terminal:
            self._api.delete(_name(handle))
        if job is None or job.state.is_terminal:
            self._forgotten.pop(handle, None)


class _Followed:
    """The part of a job's log that was read so far, and the time from which it may be read again."""

    def __init__(self, handle: str) -> None:
        self._name = _name(handle)
        self._reading = threading.Lock()
        self._fresh_until = 0.0
        self._bereft_since: float | None = None
        self.log = JobLog(_mark(handle))

    def read(self, api: JobsApi, *, must: bool = True) -> None:
        """Read the job's log, unless it was read a moment ago.

        Args:
            api: The API to read it from.
            must: True if an error must be raised when there is no answer. If the driver's node is gone, none will come.
        """
        with self._reading:
            began = time.monotonic()
            if began < self._fresh_until or (self.log.status is not None and self.log.status.phase.is_over):
                return
            try:
                self.log.take(api.log(self._name))
            except EngineUnavailable:
                if must:
                    raise
            now = time.monotonic()
            self._fresh_until = now + max(_FRESH_S, 10.0 * (now - began))

    def without_driver(self, job: RayJob, *, is_cancelled: bool) -> JobStatus:
        """Return the state of a job whose driver is gone and did not report how the job ended."""
        if not self.log.has_begun:
            is_ours = job.state is JobState.STOPPED and is_cancelled
            return JobStatus(phase=EngineJobPhase.ENDED if is_ours else EngineJobPhase.LOST, detail=job.message)
        now = time.monotonic()
        self._bereft_since = self._bereft_since or now
        if now - self._bereft_since < _OUTLAST_S:
            return JobStatus(
                phase=EngineJobPhase.RUNNING, detail="Ray is ending the nodes of the job, whose driver has ended"
            )
        return JobStatus(phase=EngineJobPhase.LOST, detail=f"the driver of the job has ended: {job.message}")


def _packed(order: dict[str, Any]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(order).encode(), 9)).decode()


def _name(handle: str) -> str:
    return handle.partition(":")[0]


def _mark(handle: str) -> str:
    return handle.partition(":")[2]
