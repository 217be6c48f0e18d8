"""The engine on a cluster that is no real one, with commands that take no time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineUnavailable, JobOrder, JobStatus
from autotuner.launch.engines.kubernetes.engine import KubernetesEngine
from autotuner.launch.engines.registration import EngineRegistration, read_engines
from tests.builders import cpu_cluster
from tests.kubernetes.cluster import FakeCluster
from tests.kubernetes.registered import table

AGES_S = 30.0


class Held:
    """Makes engines on a cluster, and waits for what they say."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._made: list[KubernetesEngine] = []

    def engine(self, more: str = "") -> KubernetesEngine:
        """A new one, with more lines in its table."""
        engine = self.registration(more).engine()
        assert isinstance(engine, KubernetesEngine)
        self._made.append(engine)
        return engine

    def registration(self, more: str = "") -> EngineRegistration:
        """Read from a file, as an operator's is."""
        path = self._folder / "engines.toml"
        path.write_text(f"[held]\n{table(self.cluster, more)}")
        return read_engines(path)["held"]

    def close(self) -> None:
        """Close all that were made."""
        for engine in self._made:
            engine.close()

    def until(self, engine: KubernetesEngine, handle: str, *phases: EngineJobPhase) -> JobStatus:
        """The first status of such a phase; an engine that does not answer is asked again."""
        deadline = time.monotonic() + AGES_S
        while time.monotonic() < deadline:
            status = looked(engine, handle)
            if status is not None and status.phase in phases:
                return status
            time.sleep(0.02)
        raise AssertionError(f"{handle} is {looked(engine, handle)} still")

    def printed(self, engine: KubernetesEngine, handle: str, node_rank: int = 0) -> Callable[[str], bool]:
        """Whether a node has printed something by now, waiting for it for a while."""

        def has(text: str) -> bool:
            deadline = time.monotonic() + AGES_S
            while time.monotonic() < deadline:
                if text.encode() in engine.read(handle, node_rank, 0):
                    return True
                time.sleep(0.02)
            return False

        return has


def looked(engine: KubernetesEngine, handle: str) -> JobStatus | None:
    """The status; None while the engine does not answer."""
    try:
        return engine.look(handle)
    except EngineUnavailable:
        return None


def order(program: str, *, name: str = "t-1-0-0", num_nodes: int = 1) -> JobOrder:
    """A job whose nodes run a Python program."""
    task = NodeTask(
        job_name=name,
        num_nodes=num_nodes,
        ranks_per_node=1,
        time_limit_s=60.0,
        command=("{python}", "-u", "-c", program),
    )
    cluster = cpu_cluster(num_nodes=num_nodes, accelerators_per_node=1)
    return JobOrder(name=name, cluster=cluster, task=task, time_limit_s=120.0)


SLEEPS = "print('begun')\nimport time\ntime.sleep(60)"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Two machines; no thread and no process is left of them."""
    before = threading.active_count()
    with FakeCluster(tmp_path) as cluster:
        yield cluster
    cluster.until(lambda: threading.active_count() <= before)


@pytest.fixture
def held(cluster: FakeCluster, tmp_path: Path) -> Iterator[Held]:
    """Makes engines on the cluster."""
    held = Held(cluster, tmp_path)
    yield held
    held.close()
