"""Ray's Jobs API over HTTP, with a time limit for each request; it needs no Ray package."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from autotuner.core.errors import InvalidInput
from autotuner.core.trial import EngineJobPhase
from autotuner.core.value import Positive, value
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobStatus

# An operator's settings of a Ray cluster, beside those of every engine.

_OURS = "AUTOTUNER_"


@value
class RaySettings:
    """The settings with which an operator runs jobs on Ray."""

    address: str
    """Address of Ray's dashboard, which serves the Jobs API: ``http://head:8265``."""
    token_variable: str = ""
    """Environment variable of the service that holds the token for Ray (``RAY_AUTH_MODE=token``); empty: no token."""
    python: str = "python3"
    """Python interpreter on the nodes; it must be the version that Ray itself runs in, with Ray, torch and this
    package."""
    accelerator_resource: str = "GPU"
    """Ray's resource name of an accelerator; a cluster of CPU cores requests none."""
    cpus_per_accelerator: Positive = 1.0
    """Number of CPUs that Ray reserves for each rank."""
    resources: dict[str, float] = field(default_factory=dict)
    """Custom resources that each node of a job reserves beside accelerators and CPUs."""
    queue_resources: dict[str, dict[str, float]] = field(default_factory=dict)
    """Extra resources that a node reserves, by queue; they tell Ray which nodes belong to the queue."""
    runtime_env: dict[str, object] = field(default_factory=dict)
    """Runtime environment for Ray, passed on unchanged: ``working_dir``, ``env_vars``, ``image_uri`` and others."""
    request_timeout_s: Positive = 10.0
    """Seconds after which a request without an answer counts as failed."""
    cancel_s: Positive = 40.0
    """Maximum time that a cancelled job may take to end."""

    def __post_init__(self) -> None:
        if not self.address.startswith(("http://", "https://")):
            nearest = f"http://{self.address.partition('://')[2] or self.address}"
            raise InvalidInput(
                "address",
                self.address,
                "must be the address of Ray's dashboard, which begins with http:// or https://",
                nearest,
            )
        _require_amounts("resources", self.resources)
        for queue, amounts in self.queue_resources.items():
            _require_amounts(f"queue_resources.{queue}", amounts)
        for name, given in self.env_vars.items():
            if not isinstance(given, str) or name.startswith(_OURS):
                rule = f"must be text, and its name must not begin with {_OURS}, which is reserved for the launcher"
                raise InvalidInput(f"runtime_env.env_vars.{name}", given, rule)

    @property
    def env_vars(self) -> Mapping[str, object]:
        """Return the environment variables that the setting ``runtime_env`` contains."""
        given = self.runtime_env.get("env_vars", {})
        if not isinstance(given, dict):
            raise InvalidInput("runtime_env.env_vars", given, "must be a table whose values are texts")
        return given


def _require_amounts(path: str, amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        if name in ("CPU", "GPU", "memory", "object_store_memory"):
            raise InvalidInput(
                f"{path}.{name}",
                amount,
                "must be a custom resource, because the built-in resources of Ray (CPU, GPU, memory) follow "
                "from the cluster",
            )
        if not amount > 0:
            raise InvalidInput(f"{path}.{name}", amount, "must be above 0")


_SAID_LETTERS = 400
"""Number of characters kept of a server's error. The end is kept, since the last lines of a traceback say most."""

_UNAUTHORIZED = (401, 403)


class JobState(StrEnum):
    """The state of a job's driver (the process that starts the job's nodes), in Ray's own words."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """Return True if the driver, the process of the job that starts its nodes, has ended."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """A job as Ray's Jobs API describes it."""

    state: JobState
    message: str
    """Ray's explanation of the state, for a person."""
    metadata: Mapping[str, str]
    """Data that the submitter asked Ray to keep with the job."""


class JobsApi:
    """Requests to the Jobs API of a Ray cluster, which its dashboard serves.

    Args:
        settings: The address of the cluster and the token to use.
        transport: A transport for the requests, which replaces the network in tests; None: the network.

    Raises:
        EngineUnavailable: Every method raises it if no server answers, or if the server is not Ray or reports an error.
    """

    def __init__(self, settings: RaySettings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._client = httpx.Client(base_url=settings.address, timeout=settings.request_timeout_s, transport=transport)

    def version(self) -> str:
        """Return the version of Ray on the cluster."""
        return str(self._json("GET", "/api/version").get("ray_version", "without a version"))

    def submit(self, submission_id: str, entrypoint: str, runtime_env: Any, metadata: Mapping[str, str]) -> None:
        """Submit a job to Ray, which then runs the command ``entrypoint``.

        Raises:
            EngineRefused: Ray does not accept the job.
        """
        wish = {
            "submission_id": submission_id,
            "entrypoint": entrypoint,
            "runtime_env": runtime_env,
            "metadata": metadata,
        }
        answer = self._request("POST", "/api/jobs/", json=wish)
        if answer.status_code == httpx.codes.BAD_REQUEST:
            raise EngineRefused(f"Ray refuses the job: {_said(answer)}")
        self._require_ok(answer)

    def job(self, submission_id: str) -> RayJob | None:
        """Return Ray's record of the job, or None if Ray has no such job."""
        answer = self._request("GET", f"/api/jobs/{submission_id}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        document = self._document(answer)
        try:
            state = JobState(str(document.get("status")))
        except ValueError as error:
            raise EngineUnavailable(
                f"{self._settings.address} reports a state of a job that this release does not know ({error}); "
                "update the autotuner, or use an older release of Ray"
            ) from error
        return RayJob(state=state, message=str(document.get("message") or ""), metadata=document.get("metadata") or {})

    def log(self, submission_id: str) -> str:
        """Return everything that the job's driver, the process that starts the job's nodes, has printed so far."""
        answer = self._request("GET", f"/api/jobs/{submission_id}/logs")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ""
        return str(self._document(answer).get("logs") or "")

    def stop(self, submission_id: str) -> None:
        """Ask Ray to end the job's driver, which is the process that starts its nodes. An unknown job is ignored."""
        answer = self._request("POST", f"/api/jobs/{submission_id}/stop")
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._require_ok(answer)

    def delete(self, submission_id: str) -> None:
        """Delete Ray's record of a job that is over. If the job is unknown, nothing happens."""
        answer = self._request("DELETE", f"/api/jobs/{submission_id}")
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._require_ok(answer)

    def close(self) -> None:
        """Close the connections to Ray."""
        self._client.close()

    def _json(self, method: str, path: str) -> dict[str, Any]:
        return self._document(self._request(method, path))

    def _request(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            return self._client.request(method, path, headers=self._headers(), **content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = str(error) or type(error).__name__
            raise EngineUnavailable(f"Ray at {self._settings.address} does not answer: {said}") from error

    def _headers(self) -> dict[str, str]:
        name = self._settings.token_variable
        if not name:
            return {}
        if name not in os.environ:
            raise EngineUnavailable(
                f"the environment variable {name}, which should hold the token for Ray, is not set; set it where "
                "the service and its workers start"
            )
        return {"Authorization": f"Bearer {os.environ[name]}"}

    def _document(self, answer: httpx.Response) -> dict[str, Any]:
        self._require_ok(answer)
        try:
            document = answer.json()
        except ValueError as error:
            raise EngineUnavailable(
                f"the server at {self._settings.address} is not Ray's Jobs API; set address to the URL of Ray's "
                "dashboard"
            ) from error
        if not isinstance(document, dict):
            raise EngineUnavailable(
                f"the server at {self._settings.address} is not Ray's Jobs API; set address to the URL of Ray's "
                "dashboard"
            )
        return document

    def _require_ok(self, answer: httpx.Response) -> None:
        if answer.status_code in _UNAUTHORIZED:
            holder = self._settings.token_variable or "token_variable, which is not set,"
            raise EngineUnavailable(f"Ray at {self._settings.address} does not accept the token in {holder}")
        if not answer.is_success:
            said = f"{answer.status_code} {_said(answer)}"
            raise EngineUnavailable(f"Ray at {self._settings.address} could not answer: {said}")


def _said(answer: httpx.Response) -> str:
    """Return the end of a response's text on one line."""
    return " ".join(answer.text.split())[-_SAID_LETTERS:]


# The reports of a job's driver on Ray in the job's log (``autotuner.trials.process.ray_driver``).


class JobLog:
    """The parsed log of a Ray job. Each call of ``take`` gets the whole log, and evaluates only the lines that are new.

    Args:
        mark: Random text after a ``#`` with which the lines of this job's driver begin. Other lines come from Ray, from
            Python or from an older job of the same name, and are ignored.

    Attributes:
        status: State of the job as the driver last reported it; None before its first report.
        has_begun: True if a node was started.
        was_stopped: True if the driver ended because Ray asked it to end, before any node had failed.
    """

    def __init__(self, mark: str) -> None:
        self._mark = f"#{mark} "
        self._taken = 0
        self._printed: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.status: JobStatus | None = None
        self.has_begun = False
        self.was_stopped = False

    def take(self, log: str) -> None:
        """Evaluate the new lines of the log. A line that is not complete is evaluated in a later call."""
        end = log.rfind("\n") + 1
        for line in log[self._taken : end].splitlines():
            _, found, rest = line.partition(self._mark)
            if found:  # the line may be cut off
                with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                    self._understand(json.loads(rest))
        self._taken = max(self._taken, end)

    def printed(self, node_rank: int, offset: int) -> bytes:
        """Return the bytes that a node has printed after the first ``offset`` bytes."""
        return bytes(self._printed[node_rank][offset:])

    def _understand(self, said: dict[str, Any]) -> None:
        if "phase" in said:
            self.status = JobStatus(phase=EngineJobPhase(said["phase"]), detail=said["detail"])
            self.has_begun |= self.status.phase is EngineJobPhase.RUNNING
            self.was_stopped |= said.get("was_stopped") is True
        else:
            self._printed[int(said["node"])] += said["text"].encode("latin-1")
