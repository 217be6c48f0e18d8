"""Interfaces of the launchers: ``Launcher``, the content of an attempt (``Work``), and its processes (``Ranks``)."""

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
    """The interface of an object that a launcher calls while a trial runs, so that the caller can follow the trial.

    If a method raises an error, the launcher ends the trial, and ``Launcher.run`` raises the same error. Such an error
    is not a result of the trial.
    """

    def on_step(self, step: StepReport) -> None:
        """Take the report of a training step: its number, time and loss. The launcher calls it for every step."""
        ...

    def on_link_event(self, event: LinkEvent) -> None:
        """Take an event of a pipeline: a link became slow or dead, a rank became slow, or the schedule changed."""
        ...

    def on_note(self, note: str) -> None:
        """Take a note, a sentence for the people who wait for the trial."""
        ...

    def on_wait(self, reason: str | None) -> None:
        """Take the reason why the trial waits for devices, as a sentence without a full stop.

        ``reason`` is None when the wait is over and the trial continues. If a job of the trial waits in the queue of an
        engine, the launcher calls only ``on_job``.
        """
        ...

    def on_run(self, run: FinishedRun) -> None:
        """Take one finished run of the trial; a trial may consist of several runs of the same layout.

        If another worker takes over the trial later, that worker gets this run in ``spec.runs`` and need not repeat it.
        """
        ...

    def on_job(self, job: EngineJob) -> None:
        """Take the state of an engine job of the trial.

        It is called when the job is submitted and whenever the state of the job changes.
        """
        ...

    def stop_requested(self) -> Stopped | None:
        """Return the reason why the trial must end, or None if it may go on.

        The launcher asks this a few times a second.
        """
        ...


class Launcher(Protocol):
    """The interface of a launcher, which runs one trial to its end.

    When ``run`` returns or raises, no process of the trial is left. The only exceptions are processes that the kernel
    cannot end; the launcher logs them and names them in the failure. If a trial runs longer than
    ``spec.settings.timeout_s``, the launcher ends it and returns a timeout failure; the time that a trial waits for
    devices does not count. Up to ``capacity`` threads may call ``run`` at the same time.

    A worker may have to leave a trial to another worker: because its process shuts down (``shutdown``), or because it
    no longer owns the trial (``lease_lost``). If the watcher stops a trial for one of these reasons, the trial's job on
    an engine keeps running. The next call with the same ``spec.trial_id`` and ``spec.run``, and with the ``spec.jobs``
    that the watcher received, finds that job and follows it. It does not start a second job.
    """

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return the reason why this launcher cannot run trials of the trainer on the cluster, or None if it can.

        The reason is a sentence. If ``trainer`` is None, the trials train the built-in transformer decoder.
        """
        ...

    def capacity(self, cluster: Cluster) -> int:
        """Return how many trials on clusters of this size can run at once without disturbing each other's measurements.

        It is at least 1, even if ``refuses`` returns a reason.
        """
        ...

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Run the trial to its end, pass its reports to the watcher, and return its outcome.

        The outcome is a measurement, a failure, or ``Stopped`` with the reason for which the trial was stopped.
        """
        ...

    def close(self) -> None:
        """Release the resources that are kept between trials. The launcher must not be used afterwards."""
        ...


class CannotRun(AutotunerError):
    """Raised for a problem of the launcher itself, such as a full disk or a process that cannot start.

    It says nothing about the layout of the trial.
    """


@contextmanager
def launcher_work() -> Iterator[None]:
    """Turn every ``OSError`` in the block into ``CannotRun``.

    Use it only around the launcher's own files and processes. Do not call a ``TrialWatcher`` in the block,
    because an ``OSError`` that the caller's watcher raises is not a problem of the launcher.
    """
    try:
        yield
    except OSError as error:
        raise CannotRun(str(error)) from error


# One attempt at a trial: what it is for, and the processes that do it. ``follow`` drives both.

ATTEMPT_ID = "AUTOTUNER_ATTEMPT_ID"
"""Environment variable with the attempt's id. Every process of the attempt inherits it, at any depth of the process
tree. A process that was forked shows the id padded with spaces."""

LEFT_ALONE = ("shutdown", "lease_lost")
"""Reasons to stop that do not end an engine's job: the next worker of the trial finds the job again."""

Ending = Stopped | Literal["measured", "timeout", "ended", "abandoned"]
"""Reason why an attempt ends: a stop that the watcher requested, a complete measurement (``measured``), the time limit
(``timeout``), ranks that failed or are gone (``ended``), or an error in the code that follows the attempt
(``abandoned``)."""

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The nodes and devices for one attempt. An attempt starts the ranks of a trial once, and ends with them."""

    num_nodes: int
    """Number of nodes; 1 for a trial on this machine, even if the trial's cluster has more."""
    ranks_per_node: int
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the processes on these nodes get."""
    devices: tuple[str, ...] | None = None
    """Devices of this machine for the ranks; None on an engine, which gives each job its own devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """The way in which the processes of an attempt ended: exit code, dead ranks, last output, timeout, lack of memory.

    An attempt starts the ranks of a trial once, and ends with them.
    """

    exit_code: int | None = None
    """Exit code of the first node that ended badly, else 0; None where a node did not report one."""
    deaths: Sequence[Death] = ()
    """Ranks that died without being ended by the launcher, in the order in which they were found."""
    rank_logs: Mapping[int, str] = field(default_factory=dict)
    """The last lines of each rank's standard error, for the ranks that wrote any."""
    log: str = ""
    """The last lines that the process that started the ranks printed."""
    timed_out: bool = False
    oom_killed: bool = False
    """True if an out-of-memory killer acted during the attempt. A rank that died of SIGKILL is then judged to be out of
    memory."""


class Work(Protocol[Result_co]):
    """The interface of the work that an attempt does, such as training a model or measuring links.

    An attempt starts the ranks of a trial once, and ends with them. The work returns the task for each node, reads the
    output of the nodes, and judges the result.
    """

    def task(self, name: str, place: Place) -> NodeTask:
        """Return the task that a process on each node runs. All processes of the task carry the name ``name``.

        Raises:
            InvalidInput: The work cannot run on these nodes.
            CannotRun: This machine lacks something that the work needs.
        """
        ...

    def take(self, lines: Sequence[NodeLine]) -> Sequence[StepReport | LinkEvent]:
        """Take all lines that have arrived since the last call, and return the reports that the caller should pass on.

        It is called many times a second, even if there are no new lines. A step of a user's own trainer is complete
        when all ranks have reported it. Some ranks may never report, so a step also counts as complete one call after a
        rank has reported a later step.
        """
        ...

    def is_complete(self) -> bool:
        """Return True once the result (such as a measurement) is complete, so that the launcher may end the ranks."""
        ...

    def has_failed(self) -> bool:
        """Return True once no later report can lead to a result any more, so that the launcher may end the ranks."""
        ...

    def judge(self, end: AttemptEnd) -> Result_co | TrialFailure:
        """Return the result of the work, such as a measurement, or the failure that explains why there is none.

        It is called after ``take`` has received all lines and all processes have ended. ``end`` says how they ended.
        """
        ...


class Ranks(Protocol):
    """The processes that run the ranks of one attempt.

    An attempt starts the ranks of a trial once, and ends with them. The processes are forked on this machine, or are
    children of a node process on this machine, or belong to a job of an engine such as Slurm.
    """

    peers_s: float
    """Seconds that the other ranks get to report their errors after the cause of one rank's failure is known."""

    def has_ended(self) -> bool:
        """Return True if all ranks have ended, or if the process or engine that should run them is gone."""
        ...

    def poll(self) -> Sequence[NodeLine]:
        """Return the ranks' report lines that arrived since the last call.

        The first call after ``end`` returns the last lines.
        """
        ...

    def end(self, why: Ending) -> AttemptEnd:
        """End the remaining processes, wait until they are gone, and return how they ended.

        Processes that the kernel cannot end may remain. A job of an engine keeps running if ``why`` says that another
        service will follow the job.
        """
        ...

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        """Return ``failure``, or ``Stopped`` if the machine or the engine caused the failure and not the trial.

        A stopped trial may run again; a failed trial is finished.
        """
        ...


class Starter(Protocol):
    """The interface for starting the ranks of an attempt on this machine.

    Several threads may start attempts at once.
    """

    slack_s: float
    """Seconds beyond the time limit that the process that owns the ranks gets to end them itself; 0 if ``follow``
    itself enforces the limit."""

    def start(self, task: NodeTask, folder: Path) -> Ranks:
        """Start the ranks of a task on this machine, the only node of the job. Return without waiting until they run.

        Args:
            task: The task. Its ``job_name`` marks all processes of the task.
            folder: A folder for this task only. The caller deletes it when the ranks have ended.

        Raises:
            OSError: A process cannot be started.
        """
        ...

    def close(self) -> None:
        """Release the processes that are kept ready for the next trial. ``start`` may still be called afterwards."""
        ...
