"""SlurmEngine: submits each trial with sbatch, starts one process per node with srun, and reads a shared folder."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from autotuner.core.cluster import Cluster
from autotuner.core.node_line import NodeEnd
from autotuner.core.trial import EngineJobPhase
from autotuner.launch.engines.engine import EngineRefused, EngineUnavailable, JobOrder, JobStatus, check_exist
from autotuner.launch.engines.slurm_commands import Command, CommandFailed, JobRow, SlurmCommands, SlurmQueue, user
from autotuner.launch.engines.slurm_job import JobFolder, SlurmSettings, batch_script, sbatch_options

_FIRST_POLL_S = 0.25
_LAST_POLL_S = 4.0
"""Longest time between two status requests after scancel; the interval doubles up to this."""

_PAUSED = ("SUSPENDED", "STOPPED")
"""States of a job that holds its nodes but does not compute, for instance after preemption with
``PreemptMode=SUSPEND``."""

_OF_AN_ACCOUNT = re.compile(r"\b(account|qos)\b", re.IGNORECASE)
"""Words in sbatch's message that show that an account or a QOS does not exist, or that this user may not use it."""

_GONE_NODE = re.compile(r"down|fail|\*")
"""Pattern in the state of a node that is gone, or that has not answered the controller for a while."""


class SlurmEngine:
    """The engine that runs jobs on a Slurm cluster.

    A handle consists of the job's number and name, such as ``4711:a17-0-1``. The number alone is not unique, because a
    controller that has lost its state starts again with low numbers.

    Args:
        name: Name under which the operator registered the engine.
        settings: The operator's settings.
        command: Runs Slurm's programs; None: the programs on this machine are run.
        fresh_s: Seconds for which an answer of squeue, which lists all jobs, is used again.
    """

    def __init__(
        self, name: str, settings: SlurmSettings, command: Command | None = None, *, fresh_s: float = 1.0
    ) -> None:
        self._name = name
        self._settings = settings
        self._command = command or SlurmCommands(timeout_s=settings.command_timeout_s, slurm_conf=settings.slurm_conf)
        self._queue = SlurmQueue(self._command, fresh_s=fresh_s)
        self._submitting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def refuses(self, cluster: Cluster) -> str | None:
        """Return None, because sbatch itself refuses a job whose partition or account is not allowed."""
        del cluster
        return None

    def check(self, queues: Sequence[str] = ()) -> str:
        """Check that Slurm answers, and return its version and the state of its partitions as a text for people.

        Raises:
            EngineUnavailable: No controller answers, or the shared folder does not exist.
            EngineRefused: A partition does not exist, or Slurm does not accept the account or the QOS.
        """
        shared = Path(self._settings.shared)
        if not shared.is_dir():
            raise EngineUnavailable(
                f"the shared folder {shared} does not exist on this machine; create it, or correct the engine's "
                "setting shared"
            )
        try:
            version = self._command("sinfo", "--version").strip()
            options = ("--all", "--noheader", "--summarize", "--format=%R %a, %D nodes")
            partitions = self._command("sinfo", *options).splitlines()
        except CommandFailed as error:
            raise EngineUnavailable(str(error)) from error
        check_exist("partition", queues, [line.split()[0] for line in partitions if line.strip()])
        self._check_account(queues)
        return f"{version}; {'; '.join(line.strip() for line in partitions)}"

    def _check_account(self, queues: Sequence[str]) -> None:
        """Ask sbatch if it would accept the account and the QOS; only sbatch knows if Slurm enforces them."""
        named = {"account": self._settings.account, "qos": self._settings.qos}
        options = [f"--{name}={value}" for name, value in named.items() if value]
        for queue in (queues or ("",)) if options else ():
            try:
                partition = (f"--partition={queue}",) if queue else ()
                self._command("sbatch", "--test-only", *options, *partition, "--wrap=true")
            except CommandFailed as error:
                if _OF_AN_ACCOUNT.search(str(error)):  # a partition that is down, for instance, is another error
                    raise EngineRefused(f"{' '.join(options)}: {error}{self._associations()}") from error

    def _associations(self) -> str:
        """Return the accounts and QOS that this user may use, in parentheses, to append to an error message."""
        options = ("--noheader", "--parsable2", "show", "associations", f"user={user()}", "format=Account,QOS")
        try:
            granted = self._command("sacctmgr", *options).split()
        except (CommandFailed, EngineUnavailable):
            return ""
        return f" (account and QOS that {user()} may use: {'; '.join(line.replace('|', ' ') for line in granted)})"

    def submit(self, order: JobOrder) -> str:
        """Create the job's folder, submit its script with sbatch, and return the handle.

        If Slurm already has a job of that name, return the handle of that job.

        Raises:
            EngineRefused: sbatch does not accept the job.
            EngineUnavailable: No controller answers. The controller may still have accepted the job; ``find`` finds it
                later.
        """
        with self._submitting[order.name]:
            if handle := self.find(order.name):
                return handle
            folder = self._folder(order.name)
            folder.create(order.task, batch_script(self._settings, order, folder.path))
            options = sbatch_options(self._settings, order, folder.path)
            try:
                printed = self._command("sbatch", *options, str(folder.script))
            except CommandFailed as error:
                folder.remove()
                raise EngineRefused(str(error)) from error
            number = int(printed.strip().split(";")[0])  # "4711;cluster" where there are several clusters
            folder.submitted_as(number)
            return _handle(number, order.name)

    def find(self, name: str) -> str | None:
        """Return the handle of the job with that name, from its folder or from squeue; None if there is no such job.

        squeue is needed if the process died after it called sbatch and before it stored the job's number.
        """
        folder = self._folder(name)
        if not folder.exists:
            return None
        number = folder.number()
        if number is None and (rows := self._queue.jobs(name, since=time.monotonic())):
            number = rows[0].number
            folder.submitted_as(number)
        return None if number is None else _handle(number, name)

    def look(self, handle: str) -> JobStatus:
        """Return the state of the job, as its nodes report it, or else as squeue or sacct reports it.

        If somebody other than this service told the nodes to end, Slurm's state of the job decides.
        """
        name, folder = self._job(handle)
        ends = folder.node_ends()
        was_told = any(end and end.told_to_end for end in ends) and not folder.is_cancelled
        if _all(ends) and not was_told:
            return JobStatus(phase=EngineJobPhase.ENDED)
        number = folder.number() or _number(handle)
        if folder.was_restarted:
            return JobStatus(
                phase=EngineJobPhase.LOST, detail=f"Slurm lost its record of job {number} and started it a second time"
            )
        row = self._row(name, number)
        if row is None:
            return JobStatus(phase=EngineJobPhase.LOST, detail=f"Slurm does not know job {number} any more")
        if row.phase is EngineJobPhase.RUNNING and any(ends) and (gone := self._gone_nodes(row)):
            return JobStatus(phase=EngineJobPhase.LOST, detail=gone)
        if row.phase is EngineJobPhase.QUEUED and was_told:
            detail = _joined(f"job {number} was requeued, but not by the autotuner", row.reason)
            return JobStatus(phase=EngineJobPhase.LOST, detail=detail)
        return self._status(row, folder, has_spoken=any(ends))

    def read(self, handle: str, node_rank: int, offset: int) -> bytes:
        """Return the output of a node from byte ``offset`` on. srun writes this output to a file."""
        return self._job(handle)[1].read(node_rank, offset)

    def cancel(self, handle: str) -> bool:
        """Cancel every job with the name in the handle, and wait up to ``cancel_s`` seconds until Slurm has ended it.

        If Slurm answers, a job whose nodes have all ended is cancelled, too, because Slurm may have queued the job
        again. Returns False if the job did not end in time.
        """
        name, folder = self._job(handle)
        folder.cancelled()
        deadline, wait_s = time.monotonic() + self._settings.cancel_s, _FIRST_POLL_S
        try:
            self._scancel(name)
        except EngineUnavailable:
            if not _all(folder.node_ends()):
                raise
        while not _all(folder.node_ends()) and self._active(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(wait_s)
            wait_s = min(2.0 * wait_s, _LAST_POLL_S)
            self._scancel(name)
        return True

    def forget(self, handle: str) -> None:
        """Delete the job's folder. Slurm deletes its own record after some time (``MinJobAge``)."""
        name, folder = self._job(handle)
        folder.remove()
        self._submitting.pop(name, None)

    def close(self) -> None:
        """Do nothing, because the engine keeps no resource between calls."""

    def _folder(self, name: str) -> JobFolder:
        return JobFolder(Path(self._settings.shared), name)

    def _job(self, handle: str) -> tuple[str, JobFolder]:
        name = handle.partition(":")[2]
        return name, self._folder(name)

    def _row(self, name: str, number: int) -> JobRow | None:
        """Return the row of the job from the controller's list, else from accounting; None if neither has it."""
        rows = {row.number: row for row in self._queue.jobs(name)}
        if number not in rows:  # the answer may be older than the job
            rows = {row.number: row for row in self._queue.jobs(name, since=time.monotonic())}
        return rows.get(number) or self._queue.accounted(name, number)

    def _status(self, row: JobRow, folder: JobFolder, *, has_spoken: bool) -> JobStatus:
        """Return the status of the job.

        ``has_spoken`` is True if a node reported how it ended, as every node does when its program ends.
        """
        detail = _detail(row)
        match row.phase:
            case EngineJobPhase.ENDED if row.state == "CANCELLED" and not folder.is_cancelled:
                return JobStatus(phase=EngineJobPhase.LOST, detail=_joined(detail, "not by the autotuner"))
            case EngineJobPhase.ENDED if not (has_spoken or folder.is_cancelled or row.state == "OUT_OF_MEMORY"):
                return JobStatus(phase=EngineJobPhase.LOST, detail=_joined(detail, folder.complaint()))
            case EngineJobPhase.RUNNING if row.state in _PAUSED:  # its time limit and its step times continue
                return JobStatus(phase=EngineJobPhase.LOST, detail=detail)
        return JobStatus(phase=row.phase, detail=detail, is_out_of_memory=row.state == "OUT_OF_MEMORY")

    def _gone_nodes(self, row: JobRow) -> str:
        """Return the job's nodes that Slurm considers gone, each with its state; empty if all nodes answer."""
        try:
            printed = self._command("sinfo", "--noheader", "--Node", f"--nodes={row.nodes}", "--format=%N %T")
        except CommandFailed:
            return ""
        lines = {line.strip() for line in printed.splitlines()}
        return ", ".join(sorted(line for line in lines if _GONE_NODE.search(line.partition(" ")[2])))

    def _scancel(self, name: str) -> None:
        try:
            self._command("scancel", f"--user={user()}", f"--name={name}")
        except CommandFailed:
            return  # it has ended by itself in this moment

    def _active(self, name: str) -> list[JobRow]:
        return [row for row in self._queue.jobs(name, since=time.monotonic()) if not row.phase.is_over]


def _all(ends: Sequence[NodeEnd | None]) -> bool:
    """Return True if every node has reported how it ended."""
    return bool(ends) and all(ends)


def _handle(number: int, name: str) -> str:
    return f"{number}:{name}"


def _number(handle: str) -> int:
    return int(handle.partition(":")[0])


def _detail(row: JobRow) -> str:
    """Return Slurm's words for why the job waits, where it runs or how it ended."""
    match row.phase:
        case EngineJobPhase.QUEUED:
            return row.reason or row.state
        case EngineJobPhase.RUNNING:
            return f"{row.state} on {row.nodes}" if row.nodes else row.state
        case _ if row.state == "CANCELLED":
            return row.state  # the reason column still shows why it waited
        case _:
            return _joined(row.state, row.reason)


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)
