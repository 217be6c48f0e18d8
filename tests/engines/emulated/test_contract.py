"""Emulated nodes keep the contract of engines; that of launchers is kept by what all engines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import EMULATED

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(tmp_path: Path) -> EngineSubject:
    """Two emulated nodes of one rank each."""
    return EngineSubject(EMULATED, tmp_path)
