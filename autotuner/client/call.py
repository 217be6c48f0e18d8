"""Call: a request to the service and the type of its answer, whoever sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import httpx

from autotuner.core import documents
from autotuner.core.codec import to_plain
from autotuner.core.errors import AutotunerError, quoted

PREFIX = "/api/v1"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request to the service."""

    method: str
    path: str
    """Below ``/api/v1``."""
    answer: type[T]
    """What the body of the answer is read as; ``str`` takes it as it is."""
    body: object = None
    """Sent as JSON; None sends none."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Of the query; those that are None are left out."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Likewise."""

    @property
    def request(self) -> dict[str, Any]:
        """What httpx takes."""
        return {
            "method": self.method,
            "url": f"{PREFIX}{self.path}",
            "json": None if self.body is None else to_plain(self.body),
            "params": {name: to_plain(value) for name, value in self.params.items() if value is not None},
            "headers": {name: value for name, value in self.headers.items() if value is not None},
        }

    def read(self, response: httpx.Response) -> T:
        """The answer as a value; fields that a newer service has more are left out.

        Raises:
            ServiceError: The service answered with a problem, or something else answered in its place.
            InvalidInput: The answer is of another release, and what is known of it does not fit.
        """
        checked(response)
        if self.answer is str:
            return cast("T", response.text)
        document = _document(response)
        return cast("T", document) if self.answer is dict else documents.restore(self.answer, document)


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
