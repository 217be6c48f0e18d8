"""The contracts of this room: launchers, what an attempt runs (``Work``), and the processes that run it (``Ranks``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.node_line import Death, NodeLine
from autotuner.core.trial import EngineJob, Stopped, TrialFailure
from autotuner.core.trial_spec import NodeTask, Trainer, TrialSpec


class TrialWatcher(Protocol):
    """The interface by which the side that ordered a trial follows it while it runs.

    What a watcher raises ends the trial and comes out of ``Launcher.run`` as it is: it says nothing of the trial.
    """

    def on_step(self, step: StepReport) -> None:
        """A step was reported."""
        ...

    def on_link_event(self, event: LinkEvent) -> None:
        """A pipeline found something out about its links or ranks, or does something about it."""
        ...

    def on_note(self, note: str) -> None:
        """Take a note for a person who waits, as a sentence."""
        ...

    def on_wait(self, reason: str | None) -> None:
        """The trial has no devices yet, and why, as a sentence without a full stop; None: it goes on with its work.

        A job in the queue of an engine is told by ``on_job`` alone.
        """
        ...

    def on_run(self, run: FinishedRun) -> None:
        """Note that one of the runs of the trial has finished; ``spec.runs`` brings it back after a takeover."""
        ...

    def on_job(self, job: EngineJob) -> None:
        """An engine was given a job for the trial, or the job is seen to stand elsewhere now."""
        ...

    def stop_requested(self) -> Stopped | None:
        """Asked a few times a second; an answer ends the trial."""
        ...


class Launcher(Protocol):
    """Runs one trial to its end.

    Whatever happens, when ``run`` returns or raises no process of the trial is left, but for those that the kernel
    cannot end: they are logged, and named in the failure. A trial past ``spec.settings.timeout_s`` is ended and comes
    back as a timeout failure; waiting for its turn does not count. ``run`` may be called from as many threads at
    once as ``capacity`` says.

    A job that an engine runs elsewhere is left alone where the watcher stops for ``shutdown`` or ``lease_lost``:
    whoever runs the trial next, with the same ``spec.trial_id`` and ``spec.run`` and the ``spec.jobs`` that the watcher
    was told of, finds it again and starts no other.
    """

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return why this launcher cannot run that trainer's trials on that cluster, as a sentence; None if it can."""
        ...

    def capacity(self, cluster: Cluster) -> int:
        """Return how many trials on clusters of that size can run at once without disturbing each other's measurements.

        At least 1, also where ``refuses`` has an answer.
        """
        ...

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the trial, pass its reports on, and say how it ended."""
        ...

    def close(self) -> None:
        """Release what is kept from one trial to the next; the launcher is not used afterwards."""
        ...


class CannotRun(AutotunerError):
    """Raised for a launcher's own fault: a full disk, a missing work directory, a process that cannot start."""


@contextmanager
def launcher_work() -> Iterator[None]:
    """Files and processes of the launcher's own: an ``OSError`` in here is ``CannotRun``, and no watcher is asked."""
    try:
        yield
    except OSError as error:
        raise CannotRun(str(error)) from error


# One attempt at a trial: what it is for, and the processes that do it. ``follow`` drives both.

ATTEMPT_ID = "AUTOTUNER_ATTEMPT_ID"
"""Environment variable that every process of an attempt inherits, wherever in the process tree it ends up; a process
that was forked shows it filled up with spaces."""

LEFT_ALONE = ("shutdown", "lease_lost")
"""Reasons to stop that leave an engine's job alone: the next worker of the trial finds it again."""

Ending = Stopped | Literal["measured", "timeout", "ended", "abandoned"]
"""Reason why an attempt is ended: the watcher's wish, a complete result, the time limit, ranks that failed or are gone,
or an error of the caller that follows it."""

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The nodes that an attempt runs on."""

    num_nodes: int
    """This machine is one node, even where a trial's cluster has more."""
    ranks_per_node: int
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the place."""
    devices: tuple[str, ...] | None = None
    """Devices of this machine for the ranks; None on an engine, which gives each job its own devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """A description of how the processes of an attempt ended, as the side that started them saw it."""

    exit_code: int | None = None
    """Exit code of the first node that ended badly, else 0; None where a node did not report one."""
    deaths: Sequence[Death] = ()
    """Ranks that died of themselves, in the order in which they were found."""
    rank_logs: Mapping[int, str] = field(default_factory=dict)
    """The last of each rank's standard error, as far as there is one."""
    log: str = ""
    """The last lines that the process that started the ranks printed."""
    timed_out: bool = False
    oom_killed: bool = False
    """An out-of-memory killer struck meanwhile; so a rank that SIGKILL ended ran out of memory."""


class Work(Protocol[Result_co]):
    """The payload of an attempt: the task of each node, the meaning of its lines, and the result they give."""

    def task(self, name: str, place: Place) -> NodeTask:
        """Return the task that each node runs; all its processes carry ``name``.

        Raises:
            InvalidInput: It cannot run on these nodes.
            CannotRun: Something that it needs is not on this machine.
        """
        ...

    def take(self, lines: Sequence[NodeLine]) -> Sequence[StepReport | LinkEvent]:
        """Take all lines of one look, and return what the watcher is to hear.

        Called many times a second, also without lines: a step of a trainer is whole when a newer one was there at the
        look *before*.
        """
        ...

    def is_complete(self) -> bool:
        """True once the whole result is there, so that the ranks may be ended."""
        ...

    def has_failed(self) -> bool:
        """True once no result can follow, whatever is reported later."""
        ...

    def judge(self, end: AttemptEnd) -> Result_co | TrialFailure:
        """The result, or why there is none; all lines were taken, and no process is left."""
        ...


class Ranks(Protocol):
    """The processes of one attempt from their start on: forked here, a node here, or an engine's job."""

    peers_s: float
    """Seconds that the other ranks get to report what they saw, once the reason of one rank's failure is known."""

    def has_ended(self) -> bool:
        """True if all ranks are gone, or if nothing is left that could start or see them."""
        ...

    def poll(self) -> Sequence[NodeLine]:
        """The lines that are new; after ``end`` the last ones."""
        ...

    def end(self, why: Ending) -> AttemptEnd:
        """End what is left, and return when no process is that can be ended.

        An engine's job goes on where ``why`` says that another service will follow it.
        """
        ...

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        """The failure, or why it says nothing of the trial where the place failed."""
        ...


class Starter(Protocol):
    """Starts ranks on this machine, of several attempts at once if asked from several threads."""

    slack_s: float
    """Extra seconds beyond the time limit in which its owner ends the ranks; 0 where ``follow`` itself enforces the
    limit."""

    def start(self, task: NodeTask, folder: Path) -> Ranks:
        """Start the ranks of a task of one node; returns before they run.

        Args:
            task: ``job_name`` marks all processes.
            folder: Of this attempt alone, gone when it is over.

        Raises:
            OSError: No process can be started.
        """
        ...

    def close(self) -> None:
        """Release what was kept for the next attempt; a later start is as good as the first."""
        ...
