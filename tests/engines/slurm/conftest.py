"""One Slurm for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotuner.launch.engines.engine import Engine
from tests.contracts.held import HeldEngine
from tests.engines.slurm.cluster import NODES, SlurmCluster, slurm_cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """Two emulated nodes; their folder has a short path, as sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    with slurm_cluster(folder) as cluster:
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def exclusive(slurm: SlurmCluster) -> HeldEngine:
    """Each job has both nodes for itself."""
    return HeldEngine(lambda folder: table(slurm, sbatch_lines=["--exclusive"]), lose_node=_loses(slurm))


@pytest.fixture(scope="session")
def crowded(slurm: SlurmCluster) -> HeldEngine:
    """Four jobs of two nodes run at once."""
    return HeldEngine(lambda folder: table(slurm), lose_node=_loses(slurm), capacity=4)


def own_settings(slurm: SlurmCluster) -> dict[str, Any]:
    """What an operator writes of that Slurm alone."""
    return {
        "shared": str(slurm.shared),
        "slurm_conf": str(slurm.conf),
        "python": sys.executable,
        "setup": [f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}"],
    }


def table(slurm: SlurmCluster, **settings: object) -> str:
    """The table of that Slurm in an operator's file."""
    said = {"kind": "slurm", "queues": ["short", "closed"], "poll_s": 0.5, **own_settings(slurm), **settings}
    return "".join(f"{name} = {value!r}\n" for name, value in said.items())  # Python's literals of these are TOML's


def _loses(slurm: SlurmCluster) -> Callable[[Engine, str, int], None]:
    def lose_node(engine: Engine, handle: str, node_rank: int) -> None:
        """Cut its power."""
        del engine, handle
        slurm.kill_node(NODES[node_rank])

    return lose_node
