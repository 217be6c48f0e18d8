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
    """Raised when the engine does not answer now. It may answer later, and jobs that it runs go on."""


class EngineRefused(AutotunerError):
    """Raised when the engine will never accept the job, like one with an unknown partition or without a right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """An order to start a job on an engine."""

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
    """The state of a job as the engine reports it."""

    phase: EngineJobPhase
    detail: str = ""
    """Reason why the job waits, or how it ended, in the engine's words; empty where the engine says nothing."""
    is_out_of_memory: bool = False
    """True if the engine says that the job ended because its program used too much memory."""


class Engine(Protocol):
    """The interface of an engine, which starts jobs on nodes other than this machine and reports their state.

    On each node of a job, ``python -m autotuner.trials.process.node`` runs once, with the node's number, the address
    and a free port of node 0, and the task. Its standard output is its report; that module describes it. The engine
    keeps the output from the first byte, at least until ``forget``. Methods may be called from any thread; each returns
    within seconds or raises ``EngineUnavailable``.
    """

    def refuses(self, cluster: Cluster) -> str | None:
        """Return why no job can start on that cluster, as a sentence, or None if no reason is known.

        The engine itself is not asked.
        """
        ...

    def check(self, queues: Sequence[str] = ()) -> str:
        """Return a few words for a person about the engine that answers, including its version.

        Args:
            queues: Queues that clusters may name.

        Raises:
            EngineUnavailable: The engine does not answer; the message says why.
            EngineRefused: The engine answers but could not take a job: a queue or a right is missing.
        """
        ...

    def submit(self, order: JobOrder) -> str:
        """Start a job and return its handle. If a job with that name exists already, its handle is returned.

        Raises:
            EngineRefused: The engine does not accept the job.
        """
        ...

    def find(self, name: str) -> str | None:
        """Return the handle of the job with that name, whether it waits, runs or is over.

        It is None if the job is unknown or forgotten.
        """
        ...

    def look(self, handle: str) -> JobStatus:
        """Return the state of the job.

        A job that the engine no longer knows is ``ENDED`` if its nodes reported their end, and ``LOST`` otherwise.
        """
        ...

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the node's output after the first ``offset`` bytes, as far as it has arrived.

        It is empty if there is none.
        """
        ...

    def cancel(self, handle: str) -> bool:
        """End the job, and wait for a while until all its processes are gone; return False if one may be left."""
        ...

    def forget(self, handle: str) -> None:
        """Remove the engine's record and files of a job that is over. If there are none, nothing happens."""
        ...

    def close(self) -> None:
        """Release the resources that are kept between calls. Jobs go on."""
        ...


def check_exist(what: str, names: Sequence[str], existing: Collection[str]) -> None:
    """Raise an error unless an engine has everything that its operator named, such as all partitions.

    Args:
        what: The word for such a thing, like ``partition``.
        names: The names that the operator gave.
        existing: The names that the engine has.

    Raises:
        EngineRefused: A name is missing. The error suggests the most similar name that exists.
    """
    for name in names:
        if name not in existing:
            nearest = get_close_matches(name, existing, 1, cutoff=0.0)
            hint = f"; the nearest is {nearest[0]} (there are: {', '.join(sorted(existing))})" if nearest else ""
            raise EngineRefused(f"there is no {what} {name}{hint}")
