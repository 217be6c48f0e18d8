"""The Kubernetes engine keeps the contracts of launchers and of engines, on a cluster that is no real one.

Its pods are processes of this machine; everything between the engine and them is the protocol of Kubernetes over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.launch.engines.engine import Engine
from tests.contracts.engine_contract import *  # noqa: F403  # its tests run here
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import HeldEngine, held_launcher
from tests.contracts.launcher_contract import *  # noqa: F403  # its tests run here
from tests.contracts.launcher_contract import Subject, held_to_contract
from tests.kubernetes.cluster import FakeCluster
from tests.kubernetes.registered import table

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module", params=["job", "jobset"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Two machines with room for one pod each."""
    with FakeCluster(tmp_path_factory.mktemp("cluster"), workload=request.param) as cluster:
        yield cluster
        cluster.until(
            lambda: not any(cluster.objects.all(plural) for plural in ("jobs", "jobsets", "pods", "services"))
        )


@pytest.fixture
def held(cluster: FakeCluster) -> HeldEngine:
    """The engine on these."""

    def lose_node(engine: Engine, handle: str, node_rank: int) -> None:
        del engine
        cluster.lose_node(cluster.pod(handle.partition("/")[2], node_rank))

    return HeldEngine(lambda folder: table(cluster), lose_node=lose_node)


@pytest.fixture
def engine(held: HeldEngine, cluster: FakeCluster, tmp_path: Path) -> Iterator[EngineSubject]:
    """The engine, on machines that all run."""
    yield EngineSubject(held, tmp_path)
    cluster.mend_nodes()


@pytest.fixture
def subject(held: HeldEngine, tmp_path: Path) -> Iterator[Subject]:
    """Its launcher, as the service builds it."""
    with held_to_contract(held_launcher(held), tmp_path) as subject:
        yield subject
