"""Kind: what a kind of run is: a machine that decides, and a function that acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from autotuner.core.run import Finish, Run
from autotuner.runs.lease import Hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """A step that performs an action. Its outcome is given to ``Machine.tell``."""

    action: Any
    progress: Any = None
    """Stored before the action begins, so that a crash during it is remembered. None stores nothing."""
    ends_jobs: bool = False
    """True if the action is performed though a cancel or a pause is wanted: it ends what an engine still runs."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that begins nothing new until a running action has ended.

    If people want the run to stop, it stops then.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """A step that gives the run back to the queue until a time, in epoch seconds."""

    at: float
    detail: str


LONG_LEASE_S = 60.0
"""Four leases of a sweep by default, for kinds whose lease is renewed every second, so that it need not be so long."""

Step: TypeAlias = Do | Wait | Later | Finish


class Machine(Protocol):
    """The logic that decides what one run does next.

    It does no I/O, and is rebuilt from the stored run whenever a worker takes the run.
    """

    def next(self, now: float) -> Step:
        """Return the next step, while actions that were begun earlier may still run."""
        ...

    def tell(self, outcome: Any) -> Any:
        """Take in the outcome of an action, and return the progress to store; None stores nothing."""
        ...


class OneAction:
    """A machine with one action. The outcome of the action is the next step."""

    def __init__(self, action: Step) -> None:
        self._next = action

    def next(self, now: float) -> Step:  # noqa: ARG002
        """Return the action at first, and its outcome afterwards."""
        return self._next

    def tell(self, outcome: Step) -> None:
        """Take in the outcome of the action, which becomes the next step."""
        self._next = outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work on one run that a worker has claimed: the machine that decides, and the function that acts."""

    machine: Machine
    perform: Callable[[Any], Any]
    """Carries an action out, on a thread. It asks ``Hold.stop`` a few times a second.

    It ends by raising ``StopRequested``, or with an outcome that tells the machine that the action was interrupted.
    """
    num_parallel: int = 1
    """Actions that may run at once."""
    hear: Callable[[Run], None] = lambda _: None
    """Learns what people want of the run now. Called before ``Machine.next``, with the same run again and again."""


def already_ended(end: Finish) -> Work:
    """Return the work for a run whose end is already known when a worker claims it."""
    return Work(machine=OneAction(end), perform=lambda _: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of durable run, as the composition root registers it with the workers."""

    name: str
    begin: Callable[[Hold], Work]
    """Rebuilds the machine from what is stored. It may read."""
    span: str
    """Name of the work in logs and traces."""
    least_lease_s: float = 0.0
    """Least length of its leases: more than a worker's own where an action cannot be interrupted for a while."""
