"""Ray as the contract suites need it."""

from __future__ import annotations

import sys
from pathlib import Path

from autotuner.launch.engines.engine import Engine
from tests.contracts.held import HeldEngine
from tests.engines.ray.cluster import RayCluster

_ROOT = Path(__file__).parents[3]


def held_ray(cluster: RayCluster, *lines: str) -> HeldEngine:
    """Two nodes of one core each; ``lines`` stand in the operator's table too."""

    def lose_node(engine: Engine, handle: str, node_rank: int) -> None:
        del engine, handle, node_rank  # a job of two nodes is on both
        cluster.lose_node()

    def registered(folder: Path) -> str:
        del folder  # Ray keeps what it keeps
        said = (
            'kind = "ray"',
            f'address = "{cluster.address}"',
            f'python = "{sys.executable}"',
            "poll_s = 0.2",
            f'runtime_env = {{ env_vars = {{ PYTHONPATH = "{_ROOT}" }} }}',
        )
        return "\n".join((*said, *lines))

    return HeldEngine(registered, lose_node)
