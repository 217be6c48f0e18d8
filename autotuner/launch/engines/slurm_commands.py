"""Runs Slurm's commands without a shell, and reads what they report about our jobs."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autotuner.core.errors import AutotunerError
from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineUnavailable

# Slurm's commands: run without a shell, with little of the service's environment, and ended where they hang.

Command = Callable[..., str]
"""Runs a program with arguments and returns what it printed; raises ``CommandFailed`` or ``EngineUnavailable``."""

_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
"""Environment variables that Slurm's commands and jobs get. Secrets of the service, such as a database URL, are not
among them."""

_AWAY = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Transport endpoint is not connected",
    "Connection refused",
    "Connection timed out",
    "Connection reset by peer",
    "Insane message length",
    "in standby mode",
    "temporarily unable",
    "Resource temporarily unavailable",
    "Slurm controller not responding",
    "Unable to establish controller machine",
    "fetch_config",
    "Munge",
    "MUNGE",
    "munge",
    "authentication",
    "MaxSubmitJob",
    "job submit limit",
    "Unable to open connection",
)
"""Parts of error messages that mean that Slurm's controller or its authentication is unreachable or overloaded."""


class CommandFailed(AutotunerError):
    """Raised when a Slurm command ends with an error that a second try would not avoid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCommands:
    """Runs Slurm's command-line programs on this machine."""

    timeout_s: float
    """Maximum time that a command may take."""
    slurm_conf: str = ""
    """Value of ``SLURM_CONF`` for the commands; empty: the variable is left out."""

    def __call__(self, program: str, *arguments: str) -> str:
        """Run the program and return what it printed.

        Raises:
            CommandFailed: The program ended with an error that will not go away.
            EngineUnavailable: The program is missing, hangs, or reached no controller.
        """
        try:
            done = subprocess.run(
                (program, *arguments),
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=self.timeout_s,
            )
        except OSError as error:
            raise EngineUnavailable(f"cannot run {program}: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise EngineUnavailable(
                f"{program} has not answered for {self.timeout_s:g} s; check that the controller of Slurm runs"
            ) from error
        if done.returncode == 0:
            return done.stdout
        said = _said(done.stderr) or f"it ended with exit code {done.returncode}"
        if any(word in said for word in _AWAY):
            raise EngineUnavailable(f"{program}: {said}")
        raise CommandFailed(f"{program}: {said}")

    def _variables(self) -> dict[str, str]:
        passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
        conf = self.slurm_conf or os.environ.get("SLURM_CONF", "")
        return passed | ({"SLURM_CONF": conf} if conf else {})


def _said(errors: str) -> str:
    """Return the last lines of standard error, joined to one line."""
    return "; ".join(line.strip() for line in errors.splitlines()[-4:] if line.strip())


# Slurm's job states: as squeue and sacct list them, and what they mean for a trial.

SQUEUE_FORMAT = "%A|%T|%r|%N|%j"
"""Columns for squeue: number, state, reason, nodes and name. The name is last because only it may contain a bar."""

SACCT_FIELDS = "JobIDRaw,State,Reason,NodeList,JobName"

_NUMBER = re.compile(r"[0-9]{1,18}")
"""Number of a job; ASCII digits only, since Python counts superscripts among digits too."""

_QUEUED = frozenset(
    ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "POWER_UP_NODE")
)
_LOST = frozenset(("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "REVOKED"))
_ENDED = frozenset(("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"))

_NOTHING = ("", "None", "(null)", "N/A", "Unknown", "None assigned")
"""Texts that Slurm prints for a field without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as squeue or sacct lists it."""

    number: int
    name: str
    state: str
    """State of the job as one word, in squeue's long form."""
    reason: str = ""
    """Reason why the job waits or ended, in Slurm's word; empty if Slurm gives none."""
    nodes: str = ""
    """The nodes that the job has or had, in Slurm's abbreviated form (``n[1-2]``); empty if it has none."""

    @property
    def phase(self) -> EngineJobPhase:
        """Return the phase (queued, running, ended or lost) that corresponds to the job's Slurm state."""
        return phase_of(self.state)


def phase_of(state: str) -> EngineJobPhase:
    """Return the phase (queued, running, ended or lost) that corresponds to a Slurm state such as ``PENDING``.

    An unknown state counts as running.
    """
    if state in _QUEUED:
        return EngineJobPhase.QUEUED
    if state in _LOST:
        return EngineJobPhase.LOST
    return EngineJobPhase.ENDED if state in _ENDED else EngineJobPhase.RUNNING


def read_squeue(printed: str) -> Iterator[JobRow]:
    """Yield the jobs in the output of squeue with ``SQUEUE_FORMAT``. Other lines are ignored."""
    for line in printed.splitlines():
        fields = line.strip().split("|", 4)
        if len(fields) == 5 and _NUMBER.fullmatch(fields[0]):
            number, state, reason, nodes, name = fields
            yield JobRow(
                number=int(number), name=name, state=_word(state), reason=_or_empty(reason), nodes=_or_empty(nodes)
            )


def read_sacct(printed: str) -> Iterator[JobRow]:
    """Yield the jobs in the output of ``sacct --parsable2`` with ``SACCT_FIELDS``; its columns are like squeue's."""
    return read_squeue(printed)


def _word(state: str) -> str:
    """Return the first word of a job's state without marks: ``CANCELLED+`` becomes ``CANCELLED``."""
    return state.split(maxsplit=1)[0].rstrip("+*") if state.split() else ""


def _or_empty(text: str) -> str:
    text = text.strip()
    return "" if text in _NOTHING else text


# Slurm's list of our jobs: one squeue serves all callers that ask at about the same time.


class SlurmQueue:
    """The jobs of the user who runs this process, as the controller (squeue) and the accounting (sacct) list them.

    Args:
        command: Runs Slurm's programs.
        fresh_s: Seconds for which an answer is used again, so that a service with many jobs does not overload the
            controller. After a failed request, the controller is not asked again for five times ``fresh_s``, because a
            failure takes seconds.
    """

    def __init__(self, command: Command, *, fresh_s: float) -> None:
        self._command = command
        self._fresh_s = fresh_s
        self._asking = threading.Lock()
        self._rows: tuple[JobRow, ...] = ()
        self._asked_at = float("-inf")
        self._failure: EngineUnavailable | None = None
        self._failed_at = float("-inf")

    def jobs(self, name: str, *, since: float | None = None) -> list[JobRow]:
        """Return the jobs with that name that the controller knows, the newest first.

        Args:
            name: Name of the job.
            since: Time on the monotonic clock. An answer from before that time is not used again. None: any answer that
                is younger than ``fresh_s`` is used again.

        Raises:
            EngineUnavailable: The controller does not answer.
        """
        rows = self._fresh(time.monotonic() - self._fresh_s if since is None else since)
        return sorted((row for row in rows if row.name == name), key=lambda row: -row.number)

    def accounted(self, name: str, number: int) -> JobRow | None:
        """Return the job as Slurm's accounting stores it; None if Slurm has no accounting, or no such job in it."""
        options = ("--noheader", "--parsable2", "--allocations", f"--jobs={number}", f"--format={SACCT_FIELDS}")
        try:
            printed = self._command("sacct", *options)
        except (CommandFailed, EngineUnavailable):
            return None
        return next((row for row in read_sacct(printed) if (row.number, row.name) == (number, name)), None)

    def _fresh(self, since: float) -> Sequence[JobRow]:
        with self._asking:
            if self._failure is not None and self._failed_at >= min(since, time.monotonic() - 5.0 * self._fresh_s):
                raise self._failure
            if self._asked_at < since:
                asked_at = time.monotonic()
                self._rows = tuple(read_squeue(self._listed()))
                self._asked_at = asked_at
            return self._rows

    def _listed(self) -> str:
        options = ("--noheader", "--states=all", f"--user={user()}", f"--format={SQUEUE_FORMAT}")
        try:
            listed = self._command("squeue", *options)
        except (CommandFailed, EngineUnavailable) as error:
            self._failure, self._failed_at = EngineUnavailable(str(error)), time.monotonic()
            raise self._failure from error
        self._failure = None
        return listed


def user() -> str:
    """Return the name of the user who runs this process, or the user's number if the user has no name.

    squeue and scancel get this name, so that they do not reach jobs of other users.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
