from __future__ import annotations

import pytest

from tests.golden.golden import Golden


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Golden:
    """What was recorded, or `make golden` records."""
    return Golden(records=request.config.getoption("--record"))
