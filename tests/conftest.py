"""What tests in several folders need once per session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from tests.databases import postgres_server

# before anything imports numpy: many BLAS threads on a few busy cores wait for each other for seconds per product
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# no test asserts a time, and how fast a busy machine makes up examples says nothing
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# the same examples every time: a failure is of the change that was tested
hypothesis.settings.register_profile("autotuner", derandomize=True, max_examples=50, **UNTIMED)
# `make properties` looks for new counterexamples; derandomize is said because hypothesis sets it wherever CI is set
hypothesis.settings.register_profile("search", derandomize=False, max_examples=1000, print_blob=True, **UNTIMED)
hypothesis.settings.load_profile("autotuner")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a real PostgreSQL server, started for the first test that asks."""
    with postgres_server() as url:
        yield url
