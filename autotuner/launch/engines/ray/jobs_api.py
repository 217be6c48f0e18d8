"""Ray's Jobs API over HTTP: answers within a time, or says why there is none. No package of Ray is needed for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx

from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable
from autotuner.launch.engines.ray.settings import RaySettings

_SAID_LETTERS = 400
"""Of what a server says of an error, which may be a page of traceback; its last lines tell most."""

_UNAUTHORIZED = (401, 403)


class JobState(StrEnum):
    """What Ray calls the states of a job's driver."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_terminal(self) -> bool:
        """The driver is gone."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """A job as the API describes it.

    Attributes:
        message: What Ray says of the state, for a person.
        metadata: What whoever submitted it wanted kept with it.
    """

    state: JobState
    message: str
    metadata: Mapping[str, str]


class JobsApi:
    """Requests to one cluster's dashboard.

    Args:
        settings: Where it is, and who asks.
        transport: Of the requests, in the place of the network.

    Raises:
        EngineUnavailable: From every method: nothing answers, or what does is not Ray or not well.
    """

    def __init__(self, settings: RaySettings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._client = httpx.Client(base_url=settings.address, timeout=settings.request_timeout_s, transport=transport)

    def version(self) -> str:
        """Of Ray on the cluster."""
        return str(self._json("GET", "/api/version").get("ray_version", "of no version"))

    def submit(self, submission_id: str, entrypoint: str, runtime_env: Any, metadata: Mapping[str, str]) -> None:
        """Start a job.

        Raises:
            EngineRefused: Ray will not have it as it is.
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
        """What is known of the job; None where nothing is."""
        answer = self._request("GET", f"/api/jobs/{submission_id}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        document = self._document(answer)
        try:
            state = JobState(str(document.get("status")))
        except ValueError as error:
            raise EngineUnavailable(
                f"{self._settings.address} knows a state of jobs that we do not: {error}"
            ) from error
        return RayJob(state=state, message=str(document.get("message") or ""), metadata=document.get("metadata") or {})

    def log(self, submission_id: str) -> str:
        """All that the job's driver has printed so far."""
        answer = self._request("GET", f"/api/jobs/{submission_id}/logs")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return ""
        return str(self._document(answer).get("logs") or "")

    def stop(self, submission_id: str) -> None:
        """Have Ray tell the job's driver to end; nothing happens to one that is gone."""
        answer = self._request("POST", f"/api/jobs/{submission_id}/stop")
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._require_ok(answer)

    def delete(self, submission_id: str) -> None:
        """Have Ray forget a job that is over."""
        answer = self._request("DELETE", f"/api/jobs/{submission_id}")
        if answer.status_code != httpx.codes.NOT_FOUND:
            self._require_ok(answer)

    def close(self) -> None:
        """Drop the connections."""
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
            raise EngineUnavailable(f"the variable {name}, which should hold the token for Ray, is not set")
        return {"Authorization": f"Bearer {os.environ[name]}"}

    def _document(self, answer: httpx.Response) -> dict[str, Any]:
        self._require_ok(answer)
        try:
            document = answer.json()
        except ValueError as error:
            raise EngineUnavailable(f"what answers at {self._settings.address} is not Ray's Jobs API") from error
        if not isinstance(document, dict):
            raise EngineUnavailable(f"what answers at {self._settings.address} is not Ray's Jobs API")
        return document

    def _require_ok(self, answer: httpx.Response) -> None:
        if answer.status_code in _UNAUTHORIZED:
            holder = self._settings.token_variable or "token_variable, which is not set,"
            raise EngineUnavailable(f"Ray at {self._settings.address} does not accept the token of {holder}")
        if not answer.is_success:
            said = f"{answer.status_code} {_said(answer)}"
            raise EngineUnavailable(f"Ray at {self._settings.address} could not answer: {said}")


def _said(answer: httpx.Response) -> str:
    """The last words of an answer, on one line."""
    return " ".join(answer.text.split())[-_SAID_LETTERS:]
