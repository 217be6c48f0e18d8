"""A durable run: one piece of long work that survives the process that works on it."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any, get_args, get_type_hints

from autotuner.core.codec import to_plain
from autotuner.core.errors import AutotunerError
from autotuner.core.value import value


class RunState(StrEnum):
    """The states of a run: queued, running or paused; after its end complete, cancelled or failed."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        """True if the run has ended. It goes on only if somebody opens it again.

        Example:
            >>> RunState.CANCELLED.is_finished
            True
        """
        return self in (RunState.COMPLETE, RunState.FAILED, RunState.CANCELLED)


OPEN = (RunState.QUEUED, RunState.RUNNING)
"""States in which a worker may take a run."""


class Stop(StrEnum):
    """The reasons why a worker must stop working on a run: a user's request, its own shutdown, or a lost lease."""

    CANCEL = "cancel"
    PAUSE = "pause"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"


@value
class Lease:
    """The right of one worker to write to one run. It lasts a limited time, and the worker renews it.

    Each renewal changes the lease. If a lease does not change for ``lease_s`` seconds, another worker may take over the
    run.
    """

    run_id: str
    owner: str
    """Name of the worker. No two workers share one."""
    claim: int
    """Number of times the run was claimed. A worker names this number in each write, and a write with an old number is
    refused."""
    renewals: int
    """Number of times the holder renewed the lease."""
    lease_s: float
    """Seconds without a renewal after which another worker may take over."""


@value
class Problem:
    """A stored error that ended a run, so that a later reader of the run gets the same error."""

    error: str
    """Name of the error's class in Python."""
    message: str
    state: dict[str, Any] = field(default_factory=dict)
    """Attributes of the error, as JSON."""

    @classmethod
    def of(cls, error: Exception) -> Problem:
        """Return an exception in its stored form: class name, message and, for errors of this product, the fields."""
        is_ours = isinstance(error, AutotunerError)
        message = str(error) if is_ours else f"{type(error).__name__}: {error}"
        return cls(error=type(error).__name__, message=message, state=_state(error) if is_ours else {})

    def as_error(self) -> AutotunerError:
        """Return the stored error as an exception.

        The result has the class of the original exception if this product defines that class.
        """
        classes = {each.__name__: each for each in _errors(AutotunerError)}
        error = AutotunerError.__new__(classes.get(self.error, AutotunerError))
        error.args = (self.message,)
        error.__dict__.update(self.state)
        return error


def _state(error: Exception) -> dict[str, Any]:
    return {name: to_plain(own) for name, own in vars(error).items() if not name.startswith("_")}


def _errors(cls: type[AutotunerError]) -> list[type[AutotunerError]]:
    return [cls, *(each for inner in cls.__subclasses__() for each in _errors(inner))]


@value
class Finish:
    """The end of a run: its final state, the reason, and the result."""

    state: RunState
    detail: str
    """Reason of the end with its numbers, as a sentence without a full stop."""
    result: Any = None
    problem: Problem | None = None
    announced: str = ""
    """Text that announces the end; empty: ``detail``."""


@value
class NewRun:
    """A new run (background work that survives restarts), with the values that the store needs to queue it."""

    id: str
    kind: str
    request: Any
    progress: Any = None
    demand: Any = None
    subject: str = ""
    created_by: str = ""
    parent_id: str | None = None
    """Id of the run or announcement that this run was queued for: the announcement of a delivery, or the gate of a
    sweep."""
    awaits: str | None = None
    """Id of the run that must end before a worker takes this run. The ``parent_id`` of that other run is this run."""
    unique_key: str | None = None
    """Key that no other run may have, so that the run is created only once."""
    due_at: float | None = None
    """Time before which no worker takes the run, in epoch seconds. None: now. 0: at once, whatever the clocks say."""


@value
class Run:
    """A run (background work that survives restarts) as it is stored.

    Each kind of run has a class of its own, which says the types of its request, progress and result.
    """

    id: str
    kind: str
    state: RunState
    subject: str
    """Name of the stored object that the run belongs to: a cluster, a webhook, a baseline. Empty if there is none."""
    created_by: str
    created_at: float
    due_at: float
    """Time before which no worker takes the run, in epoch seconds."""
    started_at: float | None = None
    finished_at: float | None = None
    request: Any
    """Request of the run, a value of the request type of its kind. It never changes."""
    progress: Any = None
    """State of the work, which the kind needs to continue after an interruption and which people can see. Only the
    worker writes it."""
    demand: Any = None
    """Changes that people ask for while the run is running. Only people write it."""
    num_changes: int = 0
    """Version of ``demand``. A worker that ends the run names the version that it knows."""
    result: Any = None
    detail: str = ""
    """Reason of the end, or the reason why the run waits, as a sentence."""
    problem: Problem | None = None
    wanted: Stop | None = None
    """CANCEL or PAUSE, if a person asked for it."""
    idle_since: float | None = None
    """Time since when the run has been idle, in epoch seconds: paused, ended, or waiting to continue. None: it is not
    idle."""
    idle_s: float = 0.0
    """Seconds that the run was idle before. Time budgets do not count them."""
    num_reopened: int = 0
    """Number of times the run was continued after an end."""
    parent_id: str | None = None
    """Id of the run that this one was queued for: the gate or the retune run that a sweep measures for."""
    child_id: str | None = None
    """Id of the run that was queued for this one: the sweep that measures for a gate or a retune run."""
    awaits: str | None = None
    """Id of the run that must end before this one continues. None: there is no such run, or it has ended."""
    lease: Lease | None = None
    """Lease of the worker that holds the run. None: no worker holds it, or the reader of this record may not see it."""

    @property
    def is_cancel_requested(self) -> bool:
        """True if somebody asked to cancel the run, so that its worker has to stop."""
        return self.wanted is Stop.CANCEL


def kind_of(cls: type[Run]) -> str | None:
    """Return the kind of runs that this class is for, such as ``sweep``; None if it is for runs of any kind."""
    words: tuple[str, ...] = get_args(get_type_hints(cls)["kind"])
    return words[0] if words else None


@value
class Wish:
    """The present requests of users about a run, such as to cancel it. A worker reads them with each lease renewal."""

    wanted: Stop | None
    num_changes: int
    """Version of the run's ``demand`` after the change."""


RENEWALS_PER_LEASE = 4
"""Number of renewals per lease. A lease survives three renewals that fail or come late."""


class StopReason(StrEnum):
    """The reasons why a sweep may end, such as a used-up budget, no further expected gain, or an error."""

    TRIAL_BUDGET = "trial_budget"
    TIME_BUDGET = "time_budget"
    ACCELERATOR_HOURS_BUDGET = "accelerator_hours_budget"
    SPACE_EXHAUSTED = "space_exhausted"
    NO_IMPROVEMENT = "no_improvement"
    NOTHING_TO_GAIN = "nothing_to_gain"
    COMPARED = "compared"  # of a challenged sweep
    ALL_TRIALS_FAIL = "all_trials_fail"
    CANNOT_RUN = "cannot_run"
    CANCELLED = "cancelled"
    ERROR = "error"


@value
class SweepEnd:
    """The end of a sweep: its final state, and the reason both as a word and as a sentence with its numbers."""

    state: RunState
    reason: StopReason
    detail: str
