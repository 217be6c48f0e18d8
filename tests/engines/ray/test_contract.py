"""Ray, a real one of two nodes, keeps the contracts of launchers and of engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import held_launcher
from tests.contracts.launcher_contract import Subject, held_to_contract
from tests.engines.ray.cluster import RayCluster
from tests.engines.ray.held import held_ray

pytestmark = pytest.mark.engine


@pytest.fixture
def engine(ray_cluster: RayCluster, tmp_path: Path) -> EngineSubject:
    """The cluster, asked by another service each time."""
    return EngineSubject(held_ray(ray_cluster), tmp_path)


@pytest.fixture(scope="module")
def subject(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """Its launcher, as the service builds it."""
    with held_to_contract(held_launcher(held_ray(ray_cluster)), tmp_path_factory.mktemp("ray")) as subject:
        yield subject
