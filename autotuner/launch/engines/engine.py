"""The contract of every engine: the few operations that ``EngineLauncher`` needs in order to run trials on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError
from autotuner.core.trial import EngineJobPhase
from autotuner.core.trial_spec import NodeTask


class EngineUnavailable(AutotunerError):
    """Raised when the engine, such as Slurm, does not answer now. It may answer later; its running jobs continue."""


class EngineRefused(AutotunerError):
    """Raised when the engine, such as Slurm, will never accept the job, for example because a partition is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A request for a job on an engine (such as Slurm): its name, nodes, time limit, and the task for each node."""

    name: str
    """Name of the job: at most 50 letters, digits and hyphens, the first a letter (a DNS label, with room for a
    suffix)."""
    cluster: Cluster
    """The number of nodes, the accelerators of each, and the queue (empty: the engine's default). The other fields of
    the cluster, such as its name, request no resources."""
    task: NodeTask
    """The task that ``python -m autotuner.trials.process.node`` runs on each node."""
    time_limit_s: float
    """Limit after which the engine may end the job. It is longer than the task's own limit, so that the task can end
    first and report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The phase of a job as the engine (such as Slurm) reports it: queued, running, ended or lost, with the reason."""

    phase: EngineJobPhase
    detail: str = ""
    """Reason why the job waits, or how it ended, in the engine's words; empty where the engine says nothing."""
    is_out_of_memory: bool = False
    """True if the engine says that the job ended because its program used too much memory."""


class Engine(Protocol):
    """The interface of an engine, which starts jobs on nodes other than this machine and reports their state.

    On each node of a job, the engine runs ``python -m autotuner.trials.process.node`` once. The arguments are the
    node's number, the address and a free port of node 0, and the task. The node reports on its standard output, in the
    format that this module describes. The engine keeps the whole output at least until ``forget``. Methods may be
    called from any thread; each returns within seconds or raises ``EngineUnavailable``.
    """

    def refuses(self, cluster: Cluster) -> str | None:
        """Return the reason why no job can start on the cluster, as a sentence, or None if no reason is known.

        The method does not send a request to the engine.
        """
        ...

    def check(self, queues: Sequence[str] = ()) -> str:
        """Check that the engine answers, and return a short text for people about it, with its version.

        Args:
            queues: Queues that clusters may name.

        Raises:
            EngineUnavailable: The engine does not answer; the message says why.
            EngineRefused: The engine answers but could not accept a job, because a queue or a right is missing.
        """
        ...

    def submit(self, order: JobOrder) -> str:
        """Start a job and return its handle.

        If a job with the name in the order exists already, return that job's handle.

        Raises:
            EngineRefused: The engine does not accept the job.
        """
        ...

    def find(self, name: str) -> str | None:
        """Return the handle of the job with that name, or None if the engine does not know the job or has forgotten it.

        The job may wait, run or be over.
        """
        ...

    def look(self, handle: str) -> JobStatus:
        """Return the state of the job: queued, running, ended or lost.

        If the engine no longer knows the job, the state is ``ENDED`` if all nodes reported their end, and ``LOST``
        otherwise.
        """
        ...

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the output of a node from byte ``offset`` on, as far as it has arrived.

        It is empty if there is no new output.
        """
        ...

    def cancel(self, handle: str) -> bool:
        """End the job before its task is complete, and wait for a while until all its processes are gone.

        Return False if a process may be left.
        """
        ...

    def forget(self, handle: str) -> None:
        """Remove the engine's record and the files of a job that is over. If they do not exist, nothing happens."""
        ...

    def close(self) -> None:
        """Release the connections and threads that are kept between calls. Running jobs continue."""
        ...


def check_exist(what: str, names: Sequence[str], existing: Collection[str]) -> None:
    """Raise an error if the operator's settings name something that the engine does not have, such as a partition.

    Args:
        what: The kind of thing, such as ``partition``, for the error message.
        names: The names in the operator's settings.
        existing: The names that the engine has.

    Raises:
        EngineRefused: A name is missing. The error suggests the most similar name that exists.
    """
    for name in names:
        if name not in existing:
            nearest = get_close_matches(name, existing, 1, cutoff=0.0)
            hint = f"; the nearest is {nearest[0]} (there are: {', '.join(sorted(existing))})" if nearest else ""
            raise EngineRefused(f"there is no {what} {name}{hint}")
