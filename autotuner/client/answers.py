"""What a service answers with: values, problems, and events from lines of ``text/event-stream``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar, cast

import httpx

from autotuner.core import documents
from autotuner.core.errors import AutotunerError, quoted

T = TypeVar("T")


class ServiceError(AutotunerError):
    """The service answered with a problem.

    Attributes:
        status: HTTP status.
        problem: The problem document (RFC 9457): ``field``, ``value``, ``rule`` and ``nearest`` of what was refused.
    """

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        super().__init__(str(problem.get("detail") or problem.get("title") or f"HTTP {status}"))


def read_answer(response: httpx.Response, answer: type[T]) -> T:
    """The answer as a value, or as text where ``str`` is asked for; what a newer service has more is left out.

    Raises:
        ServiceError: The service answered with a problem, or something else answered in its place.
        InvalidInput: The answer is of another release, and what is known of it does not fit.
    """
    checked(response)
    if answer is str:
        return cast("T", response.text)
    document = _document(response)
    return cast("T", document) if answer is dict else documents.restore(answer, document)


def checked(response: httpx.Response) -> httpx.Response:
    """The response, unless it is a problem, whose body has been read.

    Raises:
        ServiceError: It is.
    """
    if not response.is_error:
        return response
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    problem = _document(response) if is_problem else {}
    raise ServiceError(response.status_code, problem if isinstance(problem, dict) else {})


def _document(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError) as error:
        told = f"what answered is not the service: {quoted(response.text[:200])} is no JSON"
        raise ServiceError(response.status_code, {"detail": told}) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """An event of a sweep."""

    sequence: int
    """Reading goes on behind it after a cut."""
    kind: str
    """Such as ``trial.finished``; docs/api.md lists them."""
    data: dict[str, Any]
    """``at``, epoch seconds, and what is said of such an event."""

    @property
    def is_last(self) -> bool:
        """The sweep is finished."""
        return self.kind == "sweep.finished"


class EventLines:
    """Makes events of a stream's lines, as they come."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> Iterator[ServerEvent]:
        """The event that this line ends, if it does; comments keep a connection open and say nothing.

        Raises:
            ServiceError: It is none of ours: something else answers in the place of the service.
        """
        name, separator, value = line.partition(": ")
        if name and separator:
            self._fields[name] = value
        elif not line and "data" in self._fields:
            said, self._fields = self._fields, {}
            yield _event(said)


def _event(said: Mapping[str, str]) -> ServerEvent:
    try:
        return ServerEvent(sequence=int(said["id"]), kind=said["event"], data=json.loads(said["data"]))
    except (KeyError, ValueError, RecursionError) as error:
        told = f"what was streamed is no event of a sweep: {quoted(dict(said))}"
        raise ServiceError(HTTPStatus.OK, {"detail": told}) from error
