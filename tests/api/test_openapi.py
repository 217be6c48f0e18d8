from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from jsonschema_rs import Draft202012Validator
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.main import create_app
from autotuner.launch.detect import detect_cluster
from autotuner.store.sql import memory_store
from tests.api.service import app_on

DOCUMENT: dict[str, Any] = create_app(app_on(memory_store())).openapi()

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


def test_no_two_types_of_a_description_share_a_name() -> None:
    # The room would be part of the name then, which usual generators of clients cannot write.
    assert [name for name in DOCUMENT["components"]["schemas"] if "__" in name] == []


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    names = {piece.partition('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert names <= DOCUMENT["components"]["schemas"].keys()


schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", create_app(app_on(memory_store())))


@pytest.fixture(scope="module", autouse=True)
def measured_machine() -> None:
    """`local` is measured once per process, which takes a busy machine longer than the client waits for an answer."""
    detect_cluster()


@schema.exclude(method="POST").parametrize()  # what bodies may hold is much: tests/oracle/test_requests.py
@settings(max_examples=3)
def test_whatever_is_asked_is_answered_as_documented(case: Any) -> None:
    # Much that is well formed is refused for good reasons: names that are not stored, pages that are not there.
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
