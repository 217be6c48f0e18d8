"""Every request is answered as the OpenAPI document says. Generating thousands of requests takes long.

Thirteen operations take a whole job: a model and a cluster, described inside and out. What may be wrong inside of them
is tried at one operation, which reads them as the others do; the others are sent names of the catalog.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.routing import APIRoute, iter_route_contexts
from hypothesis import settings
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from autotuner.api.main import create_app
from autotuner.launch.this_machine import detect_cluster
from autotuner.store.sql import memory_store
from tests.api.service import app_on
from tests.patience import PATIENCE_S

TAKES_ANY_JOB = "/sweeps"
NAMES = {"TransformerSpecInShort": "llama-3-8b", "ClusterInShort": "h100:8"}
"""A name in the place of each description, by the description's schema."""

API = create_app(app_on(memory_store()))

OPERATIONS = sorted(
    (method, str(route.path).removeprefix("/api/v1"))
    for route in iter_route_contexts(API.routes)
    if isinstance(route.original_route, APIRoute) and route.original_route.include_in_schema
    for method in route.methods or ()
    if str(route.path).startswith("/api/v1")
)
"""Known without the document: to read that, and to make requests of it, takes long, so a test does it when it runs."""

NOT_POSTED = [(method, path) for method, path in OPERATIONS if method != "POST"]
POSTED = [(method, path) for method, path in OPERATIONS if method == "POST" and path != TAKES_ANY_JOB]


@pytest.fixture(scope="module", autouse=True)
def measured_machine() -> None:
    """`local` is measured once per process, which takes a busy machine longer than the client waits for an answer."""
    detect_cluster()


@pytest.fixture(autouse=True)
def nothing_computed_behind() -> Iterator[None]:
    """No test leaves plans behind that are computed beside the next one."""
    yield
    API.state.autotuner.plans.close()


@pytest.fixture(scope="module")
def as_described() -> BaseSchema:
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", API)


@pytest.fixture(scope="module")
def by_name() -> BaseSchema:
    """The document with each description of a model or cluster replaced by one name."""
    document = copy.deepcopy(API.openapi())
    for description, name in NAMES.items():
        document["components"]["schemas"][description] = {"type": "string", "enum": [name]}
    schema = schemathesis.openapi.from_dict(document)
    schema.app = API
    return schema


def _call_and_validate(case: Any) -> None:
    # Much that is well formed is refused for good reasons: heads that do not divide, layouts that cannot run.
    response = case.call(timeout=PATIENCE_S)
    # Schemathesis does not count 413 among the refusals of a body that is wrong besides.
    judged_by_size = [negative_data_rejection] if response.status_code == 413 else []
    case.validate_response(response, excluded_checks=[positive_data_acceptance, *judged_by_size])


def _call(case: Any) -> None:
    # Much that is well formed is refused for good reasons: names that are not stored, pages that are not there.
    case.call_and_validate(timeout=PATIENCE_S, excluded_checks=[positive_data_acceptance])


def answer_as_documented(
    schema: BaseSchema, operation: tuple[str, str], check: Callable[[Any], None], max_examples: int
) -> None:
    """Send one operation what schemathesis makes of its description, and check each answer."""
    method, path = operation
    only = schema.include(method=method, path=f"/api/v1{path}")
    examples = settings(max_examples=max_examples)
    (found,) = get_all_tests(schema=only, test_func=check, settings=examples, given_kwargs=None)
    assert isinstance(found, Ok), found
    _, send = found.ok()
    send()


@pytest.mark.oracle
@pytest.mark.parametrize("operation", NOT_POSTED, ids=" ".join)
def test_a_request_by_any_other_method_than_post_is_answered_as_documented(
    as_described: BaseSchema, operation: tuple[str, str]
) -> None:
    answer_as_documented(as_described, operation, _call, 3)


@pytest.mark.oracle
def test_a_job_that_is_described_is_answered_as_documented(as_described: BaseSchema) -> None:
    answer_as_documented(as_described, ("POST", TAKES_ANY_JOB), _call_and_validate, 6)


@pytest.mark.oracle
@pytest.mark.parametrize("operation", POSTED, ids=" ".join)
def test_a_body_that_names_its_job_is_answered_as_documented(by_name: BaseSchema, operation: tuple[str, str]) -> None:
    answer_as_documented(by_name, operation, _call_and_validate, 6)
