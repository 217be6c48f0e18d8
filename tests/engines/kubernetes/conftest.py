"""The engine on a cluster that is no real one, as the contract suites need it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotuner.launch.engines.engine import Engine
from tests.contracts.engine_contract import EngineSubject
from tests.contracts.held import HeldEngine
from tests.kubernetes.cluster import FakeCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Two machines with room for one pod each; no object is left in the end."""
    with FakeCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        kinds = ("jobs", "pods", "services")
        cluster.until(lambda: not any(cluster.objects.all(plural) for plural in kinds))


@pytest.fixture
def held(cluster: FakeCluster) -> HeldEngine:
    """The engine on these."""

    def lose_node(engine: Engine, handle: str, node_rank: int) -> None:
        del engine
        cluster.lose_node(cluster.pod(handle.partition("/")[2], node_rank), is_removed=True)

    return HeldEngine(lambda folder: cluster.table(), lose_node=lose_node)


@pytest.fixture
def engine(held: HeldEngine, cluster: FakeCluster, tmp_path: Path) -> Iterator[EngineSubject]:
    """The engine, on machines that all run."""
    yield EngineSubject(held, tmp_path)
    cluster.mend_nodes()
