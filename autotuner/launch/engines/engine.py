"""The contract of every engine: the few operations that ``EngineLauncher`` needs to do the rest."""

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
    """The engine does not answer now; it may later, and jobs that it runs go on."""


class EngineRefused(AutotunerError):
    """The engine will not have this job, today or tomorrow: an unknown partition, an account without the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder:
    """A job to be started."""

    name: str
    """Name of the job: at most 50 letters, digits and hyphens, the first a letter (a DNS label, with room for a
    suffix)."""
    cluster: Cluster
    """The number of nodes, the accelerators of each, and the queue (empty: the engine's default). Its name, model and
    memory request nothing."""
    task: NodeTask
    """The task that ``python -m trials.process.node`` runs on each node."""
    time_limit_s: float
    """Limit after which the engine may end the job. It is longer than the task's own limit, after which the task ends
    in good order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job as the engine sees it."""

    phase: EngineJobPhase
    detail: str = ""
    """Reason why the job waits, or how it ended, in the engine's words; empty where the engine says nothing."""
    is_out_of_memory: bool = False
    """The engine says that it ended for the memory that its program took."""


class Engine(Protocol):
    """Starts jobs on nodes that are not this machine's own, and says how they stand.

    On each node of a job runs ``python -m trials.process.node``, once, with the node's number, the address and a free
    port of node 0, and the task. Its standard output is its report (``trials.process.node`` says how), which the engine
    keeps for whoever asks, from the first byte on, at least until ``forget``. Methods may be called from any thread;
    each answers within seconds or raises ``EngineUnavailable``.
    """

    def refuses(self, cluster: Cluster) -> str | None:
        """Return why no job can start on that cluster, as a sentence, as far as is known without asking the engine."""
        ...

    def check(self, queues: Sequence[str] = ()) -> str:
        """Return what answers, with its version, as a few words for a person.

        Args:
            queues: Queues that clusters may name.

        Raises:
            EngineUnavailable: Nothing answers, and why.
            EngineRefused: The engine answers but could take no job: it has no such queue, or grants no right.
        """
        ...

    def submit(self, order: JobOrder) -> str:
        """Start a job and return its handle; where one of that name is known already, that one's.

        Raises:
            EngineRefused: It will not have it.
        """
        ...

    def find(self, name: str) -> str | None:
        """The handle of the job of that name, waiting, running or over, unless it was forgotten."""
        ...

    def look(self, handle: str) -> JobStatus:
        """Return the status of the job.

        A job that the engine has forgotten is ``ENDED`` if its nodes reported their end, else ``LOST``.
        """
        ...

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the node's output from that byte on, as far as it has arrived; empty if there is none."""
        ...

    def cancel(self, handle: str) -> bool:
        """End the job, and wait for a while until no process of it is left; False where one may be."""
        ...

    def forget(self, handle: str) -> None:
        """Remove the files of a job that is over; do nothing if there are none."""
        ...

    def close(self) -> None:
        """Release what is kept from one call to the next; jobs go on."""
        ...


def check_exist(what: str, names: Sequence[str], existing: Collection[str]) -> None:
    """Check that an engine has everything that its operator named.

    Args:
        what: The kind of thing, such as ``partition``.
        names: Named by the operator.
        existing: What the engine has.

    Raises:
        EngineRefused: A name is missing; with the nearest name that exists.
    """
    for name in names:
        if name not in existing:
            nearest = get_close_matches(name, existing, 1, cutoff=0.0)
            hint = f"; the nearest is {nearest[0]} (there are: {', '.join(sorted(existing))})" if nearest else ""
            raise EngineRefused(f"there is no {what} {name}{hint}")
