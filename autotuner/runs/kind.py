"""Kind: the contract of a kind of durable run, which consists of a machine that decides and a function that acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from autotuner.core.run import Finish, Run
from autotuner.runs.lease import Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """A step in which the worker performs an action. The worker passes the outcome to ``Machine.tell``."""

    action: Any
    progress: Any = None
    """Progress to store before the action begins, so that a crash during the action is remembered; None stores
    nothing."""
    ends_jobs: bool = False
    """True if the action is performed even during a cancel or a pause, because it ends jobs that an engine still
    runs."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A step in which the worker starts nothing new until a running action has ended.

    If people asked for a stop of the run, the run stops then.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """A step in which the worker puts the run back into the queue. A worker may take it again from the time ``at`` on.

    The time is in epoch seconds.
    """

    at: float
    detail: str


LONG_LEASE_S = 60.0
"""Length of a lease that is longer than a sweep's (four times the default): kinds that use it renew their lease every
second, so that it need not be longer."""

Step: TypeAlias = Do | Wait | Later | Finish


class Machine(Protocol):
    """The logic that decides what one run does next.

    A machine does no I/O. A worker that takes the run builds the machine again from the stored run.
    """

    def next(self, now: float) -> Step:
        """Return what the worker should do next: perform an action, wait, put the run back into the queue, or end it.

        Actions of earlier steps may still run.
        """
        ...

    def tell(self, outcome: Any) -> Any:
        """Record the outcome of an action, and return the new progress of the run to store; None stores nothing."""
        ...


class OneAction:
    """A machine for a run that consists of one action, such as a check. The outcome of the action ends the run."""

    def __init__(self, action: Step) -> None:
        self._next = action

    def next(self, now: float) -> Step:  # noqa: ARG002
        """Return the only action of the run until its outcome is known, and then this outcome.

        ``tell`` is called with the outcome.
        """
        return self._next

    def tell(self, outcome: Step) -> None:
        """Record the outcome of the action, a step such as the end of the run. ``next`` then returns this step."""
        self._next = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work on one claimed run: the machine, which decides, and the function that performs the machine's actions."""

    machine: Machine
    perform: Callable[[Any], Any]
    """Function that carries out an action, on a thread. It asks ``Hold.stop`` a few times a second.

    It ends by raising ``StopRequested``, or with an outcome that tells the machine that the action was interrupted."""
    num_parallel: int = 1
    """Maximum number of actions that run at once."""
    hear: Callable[[Run], None] = lambda _: None
    """Function that takes in the current requests of users to this run. It is called before every ``Machine.next``, so
    it gets the same run many times."""


def already_ended(end: Finish) -> Work:
    """Return the work for a run whose result is already known when a worker claims it: the run only has to end."""
    return Work(machine=OneAction(end), perform=lambda _: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of durable run. The service registers it with the workers, which then take runs of this kind."""

    name: str
    begin: Callable[[Hold], Work]
    """Function that rebuilds the machine from the stored run. It may read from the store."""
    span: str
    """Name of this kind of work in logs and traces."""
    least_lease_s: float = 0.0
    """Minimum length of the run's leases. It exceeds a worker's own if an action cannot be interrupted for a while."""
