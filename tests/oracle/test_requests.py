"""Whatever is asked and sent is answered as the OpenAPI document says; thinking up thousands of requests takes long."""

from __future__ import annotations

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

API = create_app(app_on(memory_store()))
schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", API)


@pytest.fixture(scope="module", autouse=True)
def measured_machine() -> None:
    """`local` is measured once per process, which takes a busy machine longer than the client waits for an answer."""
    detect_cluster()


@pytest.fixture(autouse=True)
def nothing_computed_behind() -> Iterator[None]:
    """No test leaves plans behind that are computed beside the next one."""
    yield
    API.state.plans.close()


@pytest.mark.oracle
@schema.exclude(method="POST").parametrize()
@settings(max_examples=3)
def test_whatever_is_asked_is_answered_as_documented(case: Any) -> None:
    # Much that is well formed is refused for good reasons: names that are not stored, pages that are not there.
    case.call_and_validate(timeout=60, excluded_checks=[positive_data_acceptance])  # a busy machine answers late


@pytest.mark.oracle
@schema.include(method="POST").parametrize()
@settings(max_examples=6)
def test_whatever_is_sent_is_answered_as_documented(case: Any) -> None:
    # Much that is well formed is refused for good reasons: heads that do not divide, layouts that cannot run.
    response = case.call(timeout=60)  # a busy machine answers late
    # Schemathesis does not count 413 among the refusals of a body that is wrong besides.
    judged_by_size = [negative_data_rejection] if response.status_code == 413 else []
    case.validate_response(response, excluded_checks=[positive_data_acceptance, *judged_by_size])
