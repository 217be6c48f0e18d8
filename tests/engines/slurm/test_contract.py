"""A real Slurm keeps the contracts of launchers and of engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import HeldEngine, held_launcher
from tests.contracts.launcher_contract import Subject, held_to_contract
from tests.engines.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(slurm: SlurmCluster, exclusive: HeldEngine, tmp_path: Path) -> EngineSubject:
    """Two nodes, of which each job takes both."""
    slurm.calm()
    return EngineSubject(exclusive, tmp_path)


@pytest.fixture(scope="module")
def subject(slurm: SlurmCluster, crowded: HeldEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """Two nodes with room for four jobs on both."""
    slurm.calm()
    with held_to_contract(held_launcher(crowded), tmp_path_factory.mktemp("slurm")) as subject:
        yield subject
