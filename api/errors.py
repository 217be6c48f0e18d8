"""Problem documents (RFC 9457) for every error; a browser gets them as pages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from autotuner.api.dashboard.render import page, wants_page
from autotuner.api.edge.caller import caller_in
from autotuner.core.access import Scope
from autotuner.core.codec import to_plain
from autotuner.core.documents import complaints, violation
from autotuner.core.errors import (
    AutotunerError,
    Busy,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    NotOwner,
    QuotaExceeded,
    StoreUnavailable,
    TooCostly,
    TooOften,
    Unauthenticated,
    Unreadable,
    Violation,
    in_one_line,
)

PROBLEM_MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The JSON body of every error answer: a problem document (RFC 9457), for people and for programs."""

    type: str
    """Stable name of the kind of problem, for programs."""
    title: str
    """Name of the kind of problem, for people."""
    status: int
    """The HTTP status."""
    detail: str
    """The problem with this request, as a sentence."""
    instance: str
    """Path of the request."""
    field: str | None = None
    """Field of the first of ``errors``; ``value``, ``rule`` and ``nearest`` belong to this error too."""
    value: object = None
    rule: str | None = None
    nearest: object = None
    errors: tuple[Violation, ...] = ()
    """All broken rules, at most the first 50; empty if the problem is not a broken rule."""


class CrossSite(AutotunerError):
    """Raised when a page of another web site makes a browser ask for a change here (cross-site request forgery)."""


class BodyTooLarge(AutotunerError):
    """Raised when the body of a request has more bytes than the service reads."""


class BodyTooSlow(AutotunerError):
    """Raised when the body of a request does not arrive in the time that the service allows."""


PROBLEM_KINDS: Mapping[type[Exception], tuple[str, HTTPStatus]] = {
    NotFound: ("not-found", HTTPStatus.NOT_FOUND),
    Conflict: ("conflict", HTTPStatus.CONFLICT),
    Unauthenticated: ("not-let-in", HTTPStatus.UNAUTHORIZED),
    NotAllowed: ("not-allowed", HTTPStatus.FORBIDDEN),
    NotOwner: ("not-yours", HTTPStatus.FORBIDDEN),
    CrossSite: ("cross-site", HTTPStatus.FORBIDDEN),
    TooCostly: ("too-costly", HTTPStatus.UNPROCESSABLE_ENTITY),
    StoreUnavailable: ("store-unavailable", HTTPStatus.SERVICE_UNAVAILABLE),
    QuotaExceeded: ("quota-exceeded", HTTPStatus.TOO_MANY_REQUESTS),
    TooOften: ("too-many-requests", HTTPStatus.TOO_MANY_REQUESTS),
    Busy: ("busy", HTTPStatus.SERVICE_UNAVAILABLE),
    BodyTooLarge: ("content-too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    BodyTooSlow: ("request-timeout", HTTPStatus.REQUEST_TIMEOUT),
}
"""Problem types for our errors; an error of a subclass gets the problem of its base class."""


def add_error_handlers(api: FastAPI) -> None:
    """Make ``api`` answer refused requests with problem documents (RFC 9457), also those that FastAPI refuses."""
    api.add_exception_handler(AutotunerError, answer_error)
    api.add_exception_handler(RequestValidationError, _on_request_validation_error)
    api.add_exception_handler(HTTPException, _on_http_error)


def internal_error(request: Request, request_id: str) -> Response:
    """Return the answer to an internal error: the request id to look for in the log, and no details."""
    detail = (
        "the service failed because of an error of its own; the log of the service has the details "
        f"under the request id {request_id}"
    )
    return answer_problem(request, "internal-error", HTTPStatus.INTERNAL_SERVER_ERROR, detail)


def answer_error(request: Request, error: Exception) -> Response:
    """Return the problem document for an error of the autotuner; an error of any other kind is raised again."""
    if isinstance(error, InvalidInput) and not isinstance(error, Unreadable):
        return _invalid(request, tuple(map(violation, error.complaints)))
    known = next((PROBLEM_KINDS[cls] for cls in type(error).__mro__ if cls in PROBLEM_KINDS), None)
    if known is None:
        raise error
    detail, headers, nearest = str(error), {}, None
    match error:
        case NotFound():
            nearest = error.nearest
        case Unauthenticated():
            headers = {"WWW-Authenticate": "Bearer"}
        case StoreUnavailable():
            detail, headers = _said_of_database(request, detail), {"Retry-After": "5"}
        case QuotaExceeded() | TooOften() | Busy() if error.retry_after_s is not None:
            headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
    return answer_problem(request, *known, detail, headers, nearest=nearest)


def _said_of_database(request: Request, detail: str) -> str:
    """Return the driver's message for an admin, else a general text, since the message names hosts and users."""
    structlog.get_logger("api").error("store unavailable", detail=detail)
    caller = caller_in(request.scope)
    if caller is not None and caller.scope.covers(Scope.ADMIN):
        return detail
    return "the database does not answer; the log of the service has the reason"


def _on_request_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(item["type"] == "json_invalid" for item in found):
        where = "; ".join(f"{item['ctx']['error']} at character {item['loc'][-1]}" for item in found)
        return answer_problem(request, "malformed-json", HTTPStatus.BAD_REQUEST, f"the body is not JSON: {where}")
    body = getattr(request.scope["route"], "body_field", None)
    placed = [{**item, "loc": item["loc"][1:]} for item in found]  # without the part of the request
    wrong = complaints(placed, body.field_info.annotation if body else None, whole="body")
    return _invalid(request, tuple(map(violation, wrong)), len(found))


def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, headers, detail = HTTPStatus(error.status_code), error.headers, str(error.detail)
    if status is HTTPStatus.BAD_REQUEST:  # FastAPI raises this for a body that is not JSON
        return answer_problem(request, "malformed-json", status, "the body is not JSON, or is nested too deeply")
    if status is HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}"
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"Allow": ", ".join(_allowed_methods(request)) or "GET"}
        detail = f"{request.url.path} allows only {headers['Allow']}, not {request.method}"
    return answer_problem(request, status.phrase.lower().replace(" ", "-"), status, detail, headers)


def _allowed_methods(request: Request) -> list[str]:
    """Return all documented methods of the path, because the router only knows those of the first matching route."""
    for template, operations in request.app.openapi()["paths"].items():
        if compile_path(template)[0].fullmatch(request.url.path):
            return sorted(method.upper() for method in operations)
    return []


def _invalid(request: Request, found: tuple[Violation, ...], num_found: int = 0) -> Response:
    first = found[0]
    return answer_problem(
        request,
        "invalid-input",
        HTTPStatus.UNPROCESSABLE_ENTITY,
        in_one_line(found, max(num_found, len(found))),
        field=first.field,
        value=first.value,
        rule=first.rule,
        nearest=first.nearest,
        errors=found,
    )


def answer_problem(
    request: Request,
    kind: str,
    status: HTTPStatus,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    """Return a problem document, or an error page if a browser asked for a page.

    Args:
        request: The request that failed.
        kind: Stable name of the kind of problem: the end of the document's ``type``.
        status: HTTP status.
        detail: Description of this error.
        headers: Further headers of the answer.
        members: Further fields of ``Problem``.
    """
    problem = Problem(
        type=f"urn:autotuner:problem:{kind}",
        title=kind.replace("-", " ").capitalize(),
        status=status.value,
        detail=detail,
        instance=request.url.path,
        **members,
    )
    if wants_page(request):
        return page(request, "error.html", status=status.value, problem=problem)
    content = json.dumps(
        to_plain(problem), separators=(",", ":")
    )  # in ASCII, because the sent text may not be encodable
    return Response(content, status.value, headers, media_type=PROBLEM_MEDIA_TYPE)
