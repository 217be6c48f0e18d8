"""Emulated nodes keep the contracts of launchers and of engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import EMULATED, held_launcher
from tests.contracts.launcher_contract import *  # noqa: F403  # its tests run here
from tests.contracts.launcher_contract import Subject, held_to_contract

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(tmp_path: Path) -> EngineSubject:
    """Two emulated nodes of one rank each."""
    return EngineSubject(EMULATED, tmp_path)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """Their launcher, as the service builds it."""
    with held_to_contract(held_launcher(EMULATED), tmp_path_factory.mktemp("emulated")) as subject:
        yield subject
