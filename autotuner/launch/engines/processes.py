"""ProcessEngine: runs each node of a job as a process of this machine that outlives the service."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from filelock import FileLock

from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.errors import InvalidInput
from autotuner.core.trial import EngineJobPhase
from autotuner.core.value import Count, value
from autotuner.launch.contract import ATTEMPT_ID
from autotuner.launch.engines.engine import JobOrder, JobStatus
from autotuner.launch.node_processes import end_all, free_port, processes_of

_GRACE_S = 6.0
"""Seconds that a node gets to end its ranks after it was asked to."""


@value
class ProcessSettings:
    """The settings with which an operator runs the nodes of jobs as processes on this machine."""

    folder: str
    """Folder where jobs keep the output of their nodes; every process that uses the same folder finds the same jobs."""
    num_nodes: Count = 2
    """Number of nodes that all jobs share; a job waits while too few nodes are free."""
    python: str = sys.executable
    """Path of the Python interpreter that runs the nodes."""

    def __post_init__(self) -> None:
        if not self.folder:
            raise InvalidInput("folder", self.folder, "must name a folder, for example var/jobs")


class ProcessEngine:
    """The engine that runs each node of a job as a process on this machine. A job starts when enough nodes are free.

    The engine keeps all facts about a job in the job's folder.

    Args:
        name: Name under which the engine was registered.
        settings: The operator's settings.
    """

    def __init__(self, name: str, settings: ProcessSettings) -> None:
        self._name = name
        self._settings = settings
        self._folder = Path(settings.folder).absolute()

    def refuses(self, cluster: Cluster) -> str | None:
        """Return the reason why no job can start on the cluster, or None.

        Possible reasons are that the cluster has accelerators or too many nodes.
        """
        if cluster.accelerator.kind != "cpu":
            return (
                f"the engine {self._name} runs processes on CPU cores, but {cluster.name} has "
                f"{cluster.accelerator.name}"
            )
        if cluster.num_nodes > self._settings.num_nodes:
            return (
                f"the engine {self._name} has {self._settings.num_nodes} nodes, but {cluster.name} has "
                f"{cluster.num_nodes}"
            )
        return None

    def check(self, queues: Sequence[str] = ()) -> str:
        """Return the number of nodes as a text for people. Every queue name is accepted."""
        del queues
        return f"{self._settings.num_nodes} nodes, which are processes of this machine"

    def submit(self, order: JobOrder) -> str:
        """Store the job in a folder and return its handle. The nodes of the job start when enough nodes are free."""
        job = self._folder / order.name
        with suppress(FileExistsError):
            job.mkdir(parents=True)
            (job / "task.json").write_text(dumps(order.task))
            (job / "nodes").write_text(str(order.cluster.num_nodes))
        return order.name

    def find(self, name: str) -> str | None:
        """Return the job's handle, which is its name; None if the job's folder does not exist."""
        return name if (self._folder / name / "nodes").exists() else None

    def look(self, handle: str) -> JobStatus:
        """Start the job's nodes if it waits and enough nodes are free now; then return the state of the job."""
        job = self._folder / handle
        if not (job / "nodes").exists():
            return JobStatus(phase=EngineJobPhase.LOST, detail="the engine knows nothing about this job")
        pids = _pids(job)
        if not pids:
            return self._start(job)
        is_running = any(_is_alive(*node) for node in pids)
        return JobStatus(phase=EngineJobPhase.RUNNING if is_running else EngineJobPhase.ENDED)

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the output of a node from byte ``offset`` on."""
        try:
            with (self._folder / handle / f"node-{node_rank}.out").open("rb") as output:
                output.seek(offset)
                return output.read()
        except FileNotFoundError:
            return b""

    def cancel(self, handle: str) -> bool:
        """Send SIGTERM to the job's nodes, and SIGKILL to nodes that do not end. Return True if all nodes are gone."""
        job = self._folder / handle
        if job.exists():
            (job / "cancelled").touch()
        nodes = _pids(job)
        for pid, born in nodes:
            if _is_alive(pid, born):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while any(_is_alive(*node) for node in nodes) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not end_all(handle, grace_s=0.0) and not any(processes_of(handle))

    def forget(self, handle: str) -> None:
        """Delete the job's folder."""
        shutil.rmtree(self._folder / handle, ignore_errors=True)

    def close(self) -> None:
        """Do nothing, because the engine keeps no resource between calls. Running nodes continue."""

    def _start(self, job: Path) -> JobStatus:
        if (job / "cancelled").exists():
            return JobStatus(phase=EngineJobPhase.ENDED, detail="the job was cancelled before it began")
        with FileLock(self._folder / "starting.lock"):
            if _pids(job):
                return JobStatus(phase=EngineJobPhase.RUNNING)
            num_nodes = int((job / "nodes").read_text())
            num_busy = sum(_is_alive(*node) for other in self._folder.iterdir() for node in _pids(other))
            if num_busy + num_nodes > self._settings.num_nodes:
                detail = f"{num_busy} of {self._settings.num_nodes} nodes are busy"
                return JobStatus(phase=EngineJobPhase.QUEUED, detail=detail)
            port = str(free_port())
            nodes = [self._start_node(job, node_rank, port) for node_rank in range(num_nodes)]
            (job / "pids").write_text(json.dumps(nodes))
        return JobStatus(phase=EngineJobPhase.RUNNING)

    def _start_node(self, job: Path, node_rank: int, port: str) -> tuple[int, float]:
        """Start the process of one node in a session of its own; return its process id and its start time.

        ``posix_spawn`` is used because its caller need not stay alive or wait for the child.
        """
        command = [
            *(self._settings.python, "-m", "autotuner.trials.process.node", "--task", str(job / "task.json")),
            *("--node-rank", str(node_rank), "--master-address", "127.0.0.1", "--master-port", port),
        ]
        output = str(job / f"node-{node_rank}.out")
        pid = os.posix_spawn(
            command[0],
            command,
            {**os.environ, ATTEMPT_ID: job.name, "GLOO_SOCKET_IFNAME": "lo"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        return pid, psutil.Process(pid).create_time()


def _pids(job: Path) -> list[tuple[int, float]]:
    """Return the process id and the start time of each node's process; empty before they were started."""
    try:
        return [(pid, born) for pid, born in json.loads((job / "pids").read_text())]
    except (OSError, ValueError):
        return []


def _is_alive(pid: int, born: float) -> bool:
    """Return True if this process is alive: the start time tells it from a later process with the same id.

    A child of this process that has ended is reaped.
    """
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        process = psutil.Process(pid)
        return process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
