"""The OpenAPI document: descriptions from docstrings, an example of every operation, a problem for every refusal."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from autotuner.api.edge.auth import security_of
from autotuner.api.edge.caller import SESSION_COOKIE
from autotuner.api.errors import PROBLEM_MEDIA_TYPE, Problem
from autotuner.core.access import Scope
from autotuner.core.codec import to_plain
from autotuner.core.documents import Document, dataclasses_in
from autotuner.core.listed import Listed, Stored
from autotuner.core.text import field_texts
from autotuner.core.value import derived_of

# Components of the OpenAPI document: what several requests may be written in short is described once, by a name.
#
# Code generators make a class of each component; of objects that lie inside others many make nothing.

_IN_SHORT = " in short"
"""Suffix in the titles of these objects."""

_MAX_BYTES = 2**63 - 1


def with_components(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with shared objects moved to ``components``, so that each is described once.

    An object is moved if its title ends in " in short". Code generators make a class of each component. The limits of
    whole numbers become integers that fit in 64 bits.
    """
    named: dict[str, Any] = {}
    document = _moved(document, named)
    document["components"]["schemas"] |= named
    return document


def _moved(node: Any, named: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_moved(item, named) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _moved(value, named) for key, value in node.items()}
    if node.get("type") == "integer":
        node |= {
            key: max(-_MAX_BYTES, min(int(node[key]), _MAX_BYTES)) for key in ("minimum", "maximum") if key in node
        }
    title = node.get("title")
    if not isinstance(title, str) or not title.endswith(_IN_SHORT) or "properties" not in node:
        return node
    name = title.removesuffix(_IN_SHORT) + "InShort"
    assert named.setdefault(name, node) == node, f"two objects are called {title}"
    return {"$ref": f"#/components/schemas/{name}"}


# The OpenAPI document: what docstrings say of every field, an example of every operation, a problem of every error.

Responses = dict[int | str, dict[str, Any]]

STATUS_MEANINGS = {
    400: "The body of the request is not JSON.",
    401: "The service requires a login, and this request has no valid token or session.",
    403: "The caller's scope is too low, or somebody else created the object.",
    404: "Nothing is stored under that name or id. `nearest` is the most similar stored name, if there is one.",
    408: "The body of the request did not arrive in time.",
    409: "The request contradicts stored data.",
    413: "The body is longer than the service accepts.",
    421: "The service does not answer to the host name of the request.",
    422: (
        "A value breaks a rule: `field`, `value`, `rule` and `nearest` describe it. Or the answer would need too much "
        "time or memory."
    ),
    429: ("The caller has reached a limit; `detail` names the limit, and `Retry-After` is the time to wait."),
    503: (
        "The database does not answer or is not migrated, or the answer took too long, or too many "
        "requests are waiting."
    ),
}
"""Meaning of each status code of a refusal."""


def problems(*statuses: int) -> Responses:
    """Return the ``responses`` of a route: a problem document for each error status of the route.

    Args:
        statuses: Error statuses of this route, in addition to those that every route has.
    """
    return {status: _problem(status) for status in (401, 403, *statuses, 421, 429, 503)}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": STATUS_MEANINGS[status], "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's operation, such as ``create_sweep``, as generated clients use it."""
    return route.name


def install_openapi(api: FastAPI) -> None:
    """Give ``api`` a function that makes its OpenAPI document on the first request for it."""

    def document() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = _document(api)
        return api.openapi_schema

    api.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _document(api: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=api.title,
        version=api.version,
        description=api.description,
        routes=api.routes,
        separate_input_output_schemas=False,
    )
    document = _with_plain_names(document)
    schemas = document["components"]["schemas"]
    problem = TypeAdapter(Document[Problem]).json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs") | {"Problem": problem}
    for cls in _described(api):
        _describe(schemas[cls.__name__], cls, schemas)
    for operations in document["paths"].values():
        for operation in operations.values():
            _exemplify(operation)
            if "requestBody" in operation:
                operation["responses"] |= {"408": _problem(408), "413": _problem(413)}
    _secure(document, asks=api.state.entrance is not None)
    return with_components(document)


def _with_plain_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with readable names, such as ``RetuneList`` for ``Listed_Retune_``, for code generators.

    ``StepTime__Number_`` becomes ``StepTime``, whose numbers are floats.
    """
    text = re.sub(r"\b(\w+?)__Number_(_Index_)?(?=\")", r"\1", json.dumps(document))
    text = re.sub(r"\bListed_(\w+?)_(?=\")", r"\1List", text)
    named: dict[str, Any] = json.loads(re.sub(r"\bStored_(\w+?)_(?=\")", r"Stored\1List", text))
    schemas = named["components"]["schemas"]
    for name, schema in list(schemas.items()):
        for cls in (Listed, Stored):
            if schema.get("title") == cls.__name__:
                _describe(schema, cls, schemas)
                schema["title"] = name
    return named


# ---------------------------------------------------------------- docstrings
def _described(api: FastAPI) -> set[type[Any]]:
    """Return all dataclasses of requests and answers, including those in their fields."""
    routes = list(_api_routes(api.routes))
    bodies = [route.body_field.field_info.annotation for route in routes if route.body_field]
    found: set[type[Any]] = set()
    waiting = [Problem, *bodies, *(route.response_model for route in routes)]
    while waiting:
        for cls in dataclasses_in(waiting.pop()):
            if cls not in found:
                found.add(cls)
                waiting += inspect.get_annotations(cls, eval_str=True).values()
    return found


def _api_routes(routes: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    """Yield all API routes, including those of routers that FastAPI wraps in a route of their own."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif (included := getattr(route, "original_router", None)) is not None:
            yield from _api_routes(included.routes)


def _describe(schema: dict[str, Any], cls: type[Any], schemas: dict[str, Any]) -> None:
    texts = {name: text for base in reversed(cls.__mro__) for name, text in field_texts(base).items()}
    schema["description"] = _description(cls) or cls.__name__
    for field in fields(cls):
        shape = schema["properties"][field.name]
        if text := texts.get(field.name):
            shape["description"] = " ".join(text.split())
        default = _default(field)
        if default is not MISSING and default != {}:  # generators write "{}" where a text may stand in its place
            shape["default"] = to_plain(default)
    for name, one in derived_of(cls).items():  # type: ignore[arg-type]  # a class is hashable
        hint = get_type_hints(one.fget)["return"]
        text = " ".join(inspect.cleandoc(one.__doc__ or "").split())
        shown = TypeAdapter(hint).json_schema(ref_template="#/components/schemas/{model}")
        for used, of_used in shown.pop("$defs", {}).items():
            schemas.setdefault(used, of_used)
        schema["properties"][name] = shown | {"readOnly": True, "description": text}


def _description(cls: type[Any]) -> str:
    """Return the docstring of a class without its sections, such as "Example" and "Raises"."""
    return re.split(
        r"\n\n(?:Args|Attributes|Example|Raises|Source):", inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    )[0]


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


# ---------------------------------------------------------------- credentials
_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token, as `autotuner token add` prints it."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": SESSION_COOKIE,
        "description": "Session of a browser that logged in at `/login`. A request that changes something also needs "
        "the header `X-CSRF-Token`.",
    },
}


def _secure(document: dict[str, Any], *, asks: bool) -> None:
    """Declare for every operation which credentials a caller must send, or may send if the service has no login."""
    document["components"]["securitySchemes"] = _SCHEMES
    for operations in document["paths"].values():
        for method, operation in operations.items():
            security = operation.setdefault("security", security_of(Scope.READ if method == "get" else Scope.RUN))
            if security and not asks:
                operation["security"] = [{}, *security]
            for status in () if security else ("401", "403"):  # open operations refuse nobody
                operation["responses"].pop(status, None)


# ---------------------------------------------------------------- examples
EXAMPLES = Path(__file__).parent / "examples.json"
"""Example bodies, which ``make golden`` records in one real run."""


@cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """Return the recorded examples that the OpenAPI document shows, by operation.

    An example has an ``answer`` and, if the operation has a body, a ``body``.
    """
    found: Mapping[str, Mapping[str, Any]] = json.loads(EXAMPLES.read_text(encoding="utf-8"))
    return found


def _exemplify(operation: dict[str, Any]) -> None:
    """Add examples of the request body and of every successful answer."""
    example = examples().get(operation["operationId"], {})
    successes = [answer for status, answer in operation["responses"].items() if status < "400"]
    for part, parts in (("body", [operation.get("requestBody", {})]), ("answer", successes)):
        for content in (content for each in parts for content in _contents(each) if part in example):
            content["example"] = example[part]


def _contents(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from part.get("content", {}).values()
