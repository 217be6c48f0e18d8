"""What the service says of itself; that it answers so is held by tests/oracle/test_requests.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tests.api.service import openapi_document


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document()


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, Any]:
    """Each operation under its method and path."""
    return {
        f"{method.upper()} {path}": operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def errors_of(document: dict[str, Any], content: dict[str, Any]) -> list[str]:
    """Return how the examples of a body or an answer break its schema, or that there are none."""
    validator = Draft202012Validator(content["schema"] | {"components": document["components"]})
    examples = list(examples_in(content))
    return [str(error) for example in examples for error in validator.iter_errors(example)] if examples else ["none"]


def examples_in(content: dict[str, Any]) -> Iterator[Any]:
    yield from ([content["example"]] if "example" in content else [])
    yield from (example["value"] for example in content.get("examples", {}).values())


def test_every_operation_is_described_and_tagged(operations: dict[str, Any]) -> None:
    assert [name for name, one in operations.items() if not (one["tags"] and one["description"])] == []


def test_every_success_has_an_example_that_keeps_its_schema(
    document: dict[str, Any], operations: dict[str, Any]
) -> None:
    found = {}
    for name, operation in operations.items():
        code = "201" if "201" in operation["responses"] else "200"
        ((media_type, content),) = operation["responses"][code]["content"].items()
        if media_type == "application/json":
            found[name] = errors_of(document, content)
        else:
            assert list(examples_in(content)), name
    assert len(found) > 80
    assert {name: errors for name, errors in found.items() if errors} == {}


def test_every_body_has_an_example_that_keeps_its_schema(document: dict[str, Any], operations: dict[str, Any]) -> None:
    found = {
        name: errors_of(document, operation["requestBody"]["content"]["application/json"])
        for name, operation in operations.items()
        if "requestBody" in operation
    }
    assert len(found) > 20
    assert {name: errors for name, errors in found.items() if errors} == {}


def test_every_error_is_documented_as_a_problem(operations: dict[str, Any]) -> None:
    for name, operation in operations.items():
        errors = {code: answer for code, answer in operation["responses"].items() if code >= "400"}
        assert errors, name
        for answer in errors.values():
            assert list(answer["content"]) == ["application/problem+json"], name


def test_a_service_that_asks_nobody_says_that_nothing_need_be_shown(operations: dict[str, Any]) -> None:
    assert all(operation["security"][:1] in ([], [{}]) for operation in operations.values())


def test_fields_are_described_where_they_are_declared(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Layout"]["properties"]["sequence_parallel"]["description"].startswith("Norms")  # behind the field
    assert (
        schemas["CheckFindings"]["properties"]["num_points"]["description"] == "Number of collectives that were timed."
    )  # listed


def test_no_two_types_of_a_description_share_a_name(document: dict[str, Any]) -> None:
    # The room would be part of the name then, which usual generators of clients cannot write.
    assert [name for name in document["components"]["schemas"] if "__" in name] == []


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    names = {piece.partition('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert names <= document["components"]["schemas"].keys()
