"""The OpenAPI document: an example for every operation, problem documents for every error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.dataclass_schema import schema_of
from api.errors import PROBLEM_MEDIA_TYPE, Problem
from autotuner.domain.wire import to_dict

__all__ = ["answers", "install_openapi", "stream_answers"]

Responses = dict[int | str, dict[str, Any]]

_PROBLEMS = {
    400: "The body is no JSON.",
    404: "Nothing is stored under that name or id; `nearest` is the closest there is.",
    409: "The request contradicts what is stored.",
    422: "A value breaks a rule; `field`, `value`, `rule` and `nearest` say which.",
    503: "The database is out of reach or not migrated.",
}


def answers(example: object, *problems: int, status: int = 200) -> Responses:
    """The ``responses`` of a route: an example of success, and the problems it can answer with."""
    # As text until the document is made: FastAPI drops what is null from examples.
    content = {"application/json": {"example": json.dumps(to_dict(example))}}
    return {status: {"content": content}, **{code: _problem(code) for code in (*problems, 503)}}


def stream_answers() -> Responses:
    """The ``responses`` of the event stream."""
    lines = (
        'event: trial.finished\nid: 17\ndata: {"at": 1760000042.5, "number": 3, "state": "complete", "mfu": 0.41}\n\n'
    )
    return {200: {"content": {"text/event-stream": {"example": lines}}}, **{c: _problem(c) for c in (404, 422, 503)}}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": _PROBLEMS[status], "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}}}


def install_openapi(api: FastAPI) -> None:
    """Give ``api`` an OpenAPI document that knows what a problem is."""

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
    problem = schema_of(Problem).model_json_schema(ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= problem.pop("$defs") | {"Problem": problem}
    for content in _json_contents(document):
        if "example" in content:
            content["example"] = json.loads(content["example"])
    return document


def _json_contents(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What each operation can answer in JSON."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for answer in operation["responses"].values():
                yield answer.get("content", {}).get("application/json", {})
