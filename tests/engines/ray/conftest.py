"""One cluster for all tests of Ray: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.ray.cluster import RayCluster, running_cluster


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """Two nodes of one core each."""
    with running_cluster() as cluster:
        yield cluster
