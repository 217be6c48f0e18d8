"""Every request is answered as the OpenAPI document says. Generating thousands of requests takes long.

Thirteen operations take a whole job: a model and a cluster, described inside and out. What may be wrong inside of them
is tried at one operation, which reads them as the others do; the others are sent names of the catalog.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from api.main import create_app
from autotuner.launch.detect import detect_cluster
from autotuner.store.sql import memory_store
from tests.api.service import app_on
from tests.patience import PATIENCE_S

TAKES_ANY_JOB = "/api/v1/sweeps"
NAMES = {"TransformerSpecInShort": "llama-3-8b", "ClusterInShort": "h100:8"}
"""A name in the place of each description, by the description's schema."""

API = create_app(app_on(memory_store()))
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", API)


def _with_named_jobs() -> dict[str, Any]:
    """Return the document with each description of a model or cluster replaced by one name."""
    document = copy.deepcopy(API.openapi())
    for description, name in NAMES.items():
        document["components"]["schemas"][description] = {"type": "string", "enum": [name]}
    return document


by_name = schemathesis.openapi.from_dict(_with_named_jobs())
by_name.app = API


@pytest.fixture(scope="module", autouse=True)
def measured_machine() -> None:
    """`local` is measured once per process, which takes a busy machine longer than the client waits for an answer."""
    detect_cluster()


@pytest.fixture(autouse=True)
def nothing_computed_behind() -> Iterator[None]:
    """No test leaves plans behind that are computed beside the next one."""
    yield
    API.state.plans.close()


def _call_and_validate(case: Any) -> None:
    # Much that is well formed is refused for good reasons: heads that do not divide, layouts that cannot run.
    response = case.call(timeout=PATIENCE_S)
    # Schemathesis does not count 413 among the refusals of a body that is wrong besides.
    judged_by_size = [negative_data_rejection] if response.status_code == 413 else []
    case.validate_response(response, excluded_checks=[positive_data_acceptance, *judged_by_size])


@pytest.mark.oracle
@schema.exclude(method="POST").parametrize()
@settings(max_examples=3)
def test_a_request_by_any_other_method_than_post_is_answered_as_documented(case: Any) -> None:
    # Much that is well formed is refused for good reasons: names that are not stored, pages that are not there.
    case.call_and_validate(timeout=PATIENCE_S, excluded_checks=[positive_data_acceptance])


@pytest.mark.oracle
@schema.include(method="POST", path=TAKES_ANY_JOB).parametrize()
@settings(max_examples=6)
def test_a_job_that_is_described_is_answered_as_documented(case: Any) -> None:
    _call_and_validate(case)


@pytest.mark.oracle
@by_name.include(method="POST").exclude(path=TAKES_ANY_JOB).parametrize()
@settings(max_examples=6)
def test_a_body_that_names_its_job_is_answered_as_documented(case: Any) -> None:
    _call_and_validate(case)
