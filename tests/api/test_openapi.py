"""What the service says of itself; that it answers so is held by tests/oracle/test_requests.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tests.api.service import openapi_document

DOCUMENT = openapi_document()

OPERATIONS = [
    pytest.param(operation, id=f"{method.upper()} {path}")
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]


def validate(schema: dict[str, Any], instance: Any) -> None:
    Draft202012Validator(schema | {"components": DOCUMENT["components"]}).validate(instance)


def examples_in(content: dict[str, Any]) -> Iterator[Any]:
    yield from ([content["example"]] if "example" in content else [])
    yield from (example["value"] for example in content.get("examples", {}).values())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_described_and_tagged(operation: dict[str, Any]) -> None:
    assert operation["tags"]
    assert operation["description"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_success_has_an_example_that_keeps_its_schema(operation: dict[str, Any]) -> None:
    code = "201" if "201" in operation["responses"] else "200"
    ((media_type, content),) = operation["responses"][code]["content"].items()
    examples = list(examples_in(content))
    assert examples
    for example in examples if media_type == "application/json" else ():
        validate(content["schema"], example)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_body_has_an_example_that_keeps_its_schema(operation: dict[str, Any]) -> None:
    if "requestBody" not in operation:
        return
    content = operation["requestBody"]["content"]["application/json"]
    examples = list(examples_in(content))
    assert examples
    for example in examples:
        validate(content["schema"], example)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_error_is_documented_as_a_problem(operation: dict[str, Any]) -> None:
    errors = {code: answer for code, answer in operation["responses"].items() if code >= "400"}
    assert errors
    for answer in errors.values():
        assert list(answer["content"]) == ["application/problem+json"]


def test_a_service_that_asks_nobody_says_that_nothing_need_be_shown() -> None:
    security = [operation["security"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert all(ways[:1] in ([], [{}]) for ways in security)


def test_fields_are_described_where_they_are_declared() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert schemas["Layout"]["properties"]["sequence_parallel"]["description"].startswith("Norms")  # behind the field
    assert schemas["CheckView"]["properties"]["num_points"]["description"] == "Collectives that were timed."  # listed


def test_no_two_types_of_a_description_share_a_name() -> None:
    # The room would be part of the name then, which usual generators of clients cannot write.
    assert [name for name in DOCUMENT["components"]["schemas"] if "__" in name] == []


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    names = {piece.partition('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert names <= DOCUMENT["components"]["schemas"].keys()
