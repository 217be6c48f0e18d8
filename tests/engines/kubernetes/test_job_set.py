"""What of the contract a JobSet could break: other objects are watched, pods have other names, others end them."""

from __future__ import annotations

import pytest

from tests.contracts.engine_contract import test_a_node_that_is_lost_says_nothing_of_the_trial  # noqa: F401  # runs here

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def workload() -> str:
    """What a trial is made as."""
    return "jobset"
