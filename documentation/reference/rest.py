"""The pages of the REST API, made from its OpenAPI document: operations, objects and errors."""

from __future__ import annotations

import inspect
import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from autotuner.api.errors import PROBLEM_KINDS
from autotuner.api.main import create_app
from autotuner.api.openapi import STATUS_MEANINGS, examples
from autotuner.service.build import build
from autotuner.service.settings import Settings
from documentation.reference.markdown import fence, head, prose, table, words

_INTRODUCTION = """\
`autotuner serve` offers the operations at `http://127.0.0.1:8000`. The OpenAPI document, with an example of every
operation, is at `/api/v1/openapi.json`. Send a token as `Authorization: Bearer at_...` where the service asks who
calls. Every answer carries an `X-Request-ID`, which is yours if you sent one. A body with an unknown field is refused,
so a misspelt name never passes silently. The fields of bodies and answers are on the page of [REST
objects](rest-objects.md).
"""


_OBJECTS = """\
A field without a default must be there in a body. Names of fields carry their units: `_s` is seconds, `_bytes` is
bytes, `_flop` is floating-point operations.
"""


_MAX_EXAMPLE = 900
"""Maximum number of characters of an example body; longer bodies are only in the OpenAPI document."""


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of a service that requires a login."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'reference.db'}"
        app = build(Settings(database_url=url, num_workers=0, login="tokens"))
        document: dict[str, Any] = create_app(app).openapi()
        app.close()
        return document


# ---------------------------------------------------------------- operations
def rest_page() -> str:
    """Return the Markdown page of REST operations: a table of all, then each one, grouped by tag."""
    tags: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in openapi()["paths"].items():
        for method, operation in operations.items():
            tags.setdefault((operation.get("tags") or ["service"])[0], []).append((method.upper(), path, operation))
    parts = [
        head("REST API", "Every operation of the REST API, with its scope, parameters, answers and errors."),
        _INTRODUCTION,
    ]
    for tag, found in tags.items():
        rows = [(f"[`{method} {path}`](#{one['operationId']})", _first(one)) for method, path, one in found]
        parts.append(f"**{_title(tag)}**\n\n{table(('operation', 'it does'), rows)}")
    for tag, found in tags.items():
        parts.append(f"## {_title(tag)}\n")
        parts += [_operation(*one) for one in found]
    return "\n".join([*parts, *_errors()])


def _title(tag: str) -> str:
    return tag.replace("-", " ").capitalize()


def _about(operation: dict[str, Any]) -> str:
    return str(operation.get("description") or operation["summary"])


def _first(operation: dict[str, Any]) -> str:
    return prose(_about(operation).partition("\n\n")[0])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"### `{method} {path}` {{ #{operation['operationId']} }}\n", f"{prose(_about(operation))}\n"]
    facts = [f"* Scope: {_scope(operation)}", f"* In `autotuner.remote`: `{operation['operationId']}`"]
    body = operation.get("requestBody", {}).get("content", {})
    facts += [f"* Body: {_kind(content.get('schema', {}))} (`{media}`)" for media, content in body.items()]
    answers, refusals = [], []
    for status, answer in sorted(operation["responses"].items()):
        if status < "400":
            kinds = [_kind(one.get("schema", {})) for one in answer.get("content", {}).values()] or ["nothing"]
            said = "" if answer["description"] == "Successful Response" else f". {answer['description']}"
            answers.append(f"* Answers `{status}` with {' or '.join(dict.fromkeys(kinds))}{said}")
        else:
            refusals.append(f"`{status}`")
    errors = [f"* Errors: {', '.join(refusals)} ([meanings](#errors))"] if refusals else []
    parts.append("\n".join([*facts, *answers, *errors]) + "\n")
    if operation.get("parameters"):
        rows = [_parameter(one) for one in operation["parameters"]]
        parts.append(table(("parameter", "in", "type", "default", "meaning"), rows))
    example = examples().get(operation["operationId"], {}).get("body")
    if example is not None and len(text := json.dumps(example, indent=2)) <= _MAX_EXAMPLE:
        parts.append("A body:\n\n" + fence(text, "json"))
    return "\n".join(parts)


def _scope(operation: dict[str, Any]) -> str:
    needed = [scope for way in operation.get("security", ()) for scope in way.get("token", ())]
    return f"`{needed[0]}`" if needed else "none, anybody may call it"


def _parameter(one: dict[str, Any]) -> tuple[str, ...]:
    schema = one["schema"]
    default = "required" if one["required"] else _default(schema)
    about = one.get("description") or schema.get("description") or ""
    return f"`{one['name']}`", one["in"], _kind(schema), default, prose(about)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield (
        "Every error is a problem document (RFC 9457, `application/problem+json`), the object\n"
        "[Problem](rest-objects.md#problem). `errors` lists every rule that a body breaks, the first 50 of many.\n"
    )
    yield table(("status", "meaning"), [(f"`{status}`", text) for status, text in STATUS_MEANINGS.items()])
    yield "`type` is a name to branch on. It begins with `urn:autotuner:problem:`.\n"
    rows = [(f"`{name}`", f"`{status.value}`", _docstring(cls)) for cls, (name, status) in PROBLEM_KINDS.items()]
    rows.append(("`invalid-input`", "`422`", "A value that a caller gave breaks a rule."))
    rows.append(("`internal-error`", "`500`", "The service failed. Its log says more under the request id."))
    yield table(("type", "status", "meaning"), sorted(rows, key=lambda row: (row[1], row[0])))


def _docstring(cls: type[Any]) -> str:
    return prose(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0])


# ---------------------------------------------------------------- objects
def rest_objects_page() -> str:
    """Return the Markdown page of REST objects: the fields of every request and answer."""
    parts = [
        head("REST objects", "The fields of every JSON object that the REST API takes or answers."),
        _OBJECTS,
    ]
    for name, schema in sorted(openapi()["components"]["schemas"].items()):
        parts.append(_object(name, schema))
    return "\n".join(parts)


def _object(name: str, schema: dict[str, Any]) -> str:
    about = prose(schema.get("description", ""))
    parts = [f"## {name} {{ #{name.lower()} }}\n", *([f"{about}\n"] if about and about != name else [])]
    if "properties" not in schema:
        return "\n".join([*parts, f"Value: {_kind(schema, here=True)}\n"])
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", _kind(one, here=True), _field_default(field, one, required), prose(one.get("description", "")))
        for field, one in schema["properties"].items()
    ]
    return "\n".join([*parts, table(("field", "type", "default", "meaning"), rows)])


def _field_default(field: str, schema: dict[str, Any], required: Iterable[str]) -> str:
    if schema.get("readOnly"):
        return "in answers only"
    return "" if field in required else _default(schema)


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "none"
    text = json.dumps(schema["default"])
    return f"`{text}`" if len(text) <= 40 else "as the type has it"


# ---------------------------------------------------------------- types
_NAMES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}


def _kind(schema: dict[str, Any], *, here: bool = False) -> str:
    """Return a JSON schema in words; a named object becomes a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}]({'' if here else 'rest-objects.md'}#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return words(schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_kind(one, here=here) for one in schema[key]))
    if schema.get("type") == "array":
        items = schema.get("items") or {}
        return f"list of {_kind(items, here=here)}" if items else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {_kind(values, here=here)}" if isinstance(values, dict) and values else "object"
    kind = _NAMES.get(schema.get("type", ""), "any value")
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and high >= 2**31 - 1:
        high = None
    bounds = [f"at least {low:g}"] if low is not None else []
    bounds += [f"above {schema['exclusiveMinimum']:g}"] if "exclusiveMinimum" in schema else []
    bounds += [f"at most {high:g}"] if high is not None else []
    bounds += [f"below {schema['exclusiveMaximum']:g}"] if "exclusiveMaximum" in schema else []
    return f", {', '.join(bounds)}" if bounds else ""


def anchors(page: str) -> set[str]:
    """Return the names of all explicit anchors (``{ #name }``) on a Markdown page."""
    return set(re.findall(r"\{ #([\w-]+) \}", page))
