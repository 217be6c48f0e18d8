"""Ray's Jobs API, answered from a script: what a dashboard would say of jobs, and what their drivers would print."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from autotuner.core.cluster import Cluster
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import JobOrder
from autotuner.launch.engines.ray import RayEngine
from autotuner.launch.engines.ray_api import JobsApi, RaySettings
from tests.builders import cpu_cluster
from tests.trials.launching import spec

NAME = "t-17-0-0"


@dataclass
class Job:
    """A job that the dashboard knows."""

    wish: dict[str, Any] = field(default_factory=dict)
    status: str = "RUNNING"
    message: str = ""
    log: str = ""

    @property
    def order(self) -> dict[str, Any]:
        """What its driver is told."""
        packed = self.wish["runtime_env"]["env_vars"]["AUTOTUNER_RAY_ORDER"]
        unpacked: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
        return unpacked

    def says(self, **document: Any) -> None:
        """Its driver prints a line."""
        self.log += f"#{self.order['mark']} {json.dumps(document)}\n"


class ScriptedRay:
    """Answers like a dashboard, and remembers what it was asked.

    Attributes:
        jobs: By submission id.
        failing: What is answered instead, by method and path: a response, or an exception to raise.
        tokens: What requests named as their token.
        stopped: What was to be stopped, in order.
        at_stop: Called when something was to be stopped.
        num_logs_read: How often a log was asked for.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.failing: dict[str, httpx.Response | Exception] = {}
        self.tokens: list[str | None] = []
        self.stopped: list[str] = []
        self.at_stop: Callable[[], None] = lambda: None
        self.num_logs_read = 0

    @property
    def job(self) -> Job:
        """The only one."""
        return self.jobs[NAME]

    def engine(self, **settings: Any) -> RayEngine:
        """A new one: another service on the same Ray."""
        said = RaySettings(address="http://head:8265", **settings)
        return RayEngine("ray", said, JobsApi(said, httpx.MockTransport(self._answer)), monitor_s=0.2)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.tokens.append(request.headers.get("Authorization"))
        word = f"{request.method} {request.url.path}"
        if word in self.failing:
            failure = self.failing[word]
            if isinstance(failure, Exception):
                raise failure
            return failure
        match word.split("/")[:2], request.url.path.strip("/").split("/")[2:]:
            case ["POST ", "api"], []:
                return self._submitted(json.loads(request.content))
            case ["POST ", "api"], [name, "stop"]:
                self.stopped.append(name)
                self.at_stop()
                return httpx.Response(200, json={"stopped": True})
            case ["GET ", "api"], [name, "logs"] if name in self.jobs:
                self.num_logs_read += 1
                return httpx.Response(200, json={"logs": self.jobs[name].log})
            case ["GET ", "api"], [name] if name in self.jobs:
                job = self.jobs[name]
                metadata = job.wish.get("metadata")
                return httpx.Response(200, json={"status": job.status, "message": job.message, "metadata": metadata})
            case ["DELETE ", "api"], [name] if name in self.jobs:
                del self.jobs[name]
                return httpx.Response(200, json={"deleted": True})
            case ["GET ", "api"], [] if request.url.path == "/api/version":
                return httpx.Response(200, json={"version": "4", "ray_version": "2.60.0"})
        return httpx.Response(404, text="does not exist")

    def _submitted(self, wish: dict[str, Any]) -> httpx.Response:
        name = wish["submission_id"]
        if name in self.jobs:
            return httpx.Response(500, text=f"ValueError: Job with submission_id {name} already exists.")
        self.jobs[name] = Job(wish)
        return httpx.Response(200, json={"submission_id": name})


def order(name: str = NAME, *, cluster: Cluster | None = None, **task: Any) -> JobOrder:
    """Two nodes of one rank each."""
    cluster = cluster or cpu_cluster(num_nodes=2, accelerators_per_node=1)
    wanted = NodeTask(
        job_name=name,
        num_nodes=cluster.num_nodes,
        ranks_per_node=cluster.accelerators_per_node,
        time_limit_s=60.0,
        spec=spec("17"),
        **task,
    )
    return JobOrder(name=name, cluster=cluster, task=wanted, time_limit_s=180.0)
