"""What Slurm says of our jobs: one squeue for all who ask at about the same time."""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Sequence

from autotuner.launch.engines.engine import EngineUnavailable
from autotuner.launch.engines.slurm.commands import Command, CommandFailed
from autotuner.launch.engines.slurm.states import SACCT_FIELDS, SQUEUE_FORMAT, JobRow, read_sacct, read_squeue


class SlurmQueue:
    """The jobs of the user that we are, as the controller lists them, and as accounting remembers them.

    Args:
        command: Runs Slurm's programs.
        fresh_s: Younger answers serve again: a service that follows many jobs must not weigh on a controller. That none
            came serves five times as long, since to find it out takes seconds.
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
        """The jobs of that name that the controller knows, the newest first.

        Args:
            name: Of the job.
            since: On the monotonic clock; an older answer does not serve. None: any that is fresh.

        Raises:
            EngineUnavailable: The controller does not answer.
        """
        rows = self._fresh(time.monotonic() - self._fresh_s if since is None else since)
        return sorted((row for row in rows if row.name == name), key=lambda row: -row.number)

    def accounted(self, name: str, number: int) -> JobRow | None:
        """The job as accounting remembers it; None where there is no accounting, or none of this job."""
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
    """Whoever runs this process, by name where there is one: squeue and scancel must not reach jobs of others."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
