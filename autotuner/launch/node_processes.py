"""Runs a node as a process that dies with the service, and makes sure that all processes of an attempt end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import structlog

from autotuner.core.codec import dumps
from autotuner.core.node_line import Death, NodeLine
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import NodeTask
from autotuner.host import supervisor
from autotuner.host.machine_facts import ALSO_RECORDED
from autotuner.launch.contract import ATTEMPT_ID, AttemptEnd, Ending, Ranks
from autotuner.launch.lines import NodeOutputs

_NEEDED_BY_A_NODE = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", ALSO_RECORDED)
"""Environment variables of the service that a trainer's node gets beside the task's own. A database URL is never among
them."""

_SLACK_S = 4.5
"""Extra seconds after the time limit: the node itself enforces the limit and ends ranks that hang within four
seconds."""

_PEERS_S = 5.0
"""Seconds that torchrun gets to report which rank was killed."""

_GRACE_S = 8.0
"""Seconds that a node gets to end its processes; the node itself gives them six seconds."""

_PIPE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_POLL_S = 0.02

_log = structlog.get_logger(__name__)


class NodeProcesses:
    """Starts the ranks of each trial under one node process, and the node process under a supervisor process.

    The node process is ``python -m autotuner.trials.process.node``. The supervisor adopts every process that loses its
    parent. The kernel ends the supervisor when the *thread* that started it ends. Therefore all processes of a trial
    end with the trial, even a process that started its own session, and no process outlives a service that is killed.
    """

    slack_s = _SLACK_S

    def start(self, task: NodeTask, folder: Path) -> Ranks:
        """Start a node process on this machine, which starts the ranks of the task; see ``Starter.start``."""
        (folder / "node").mkdir()
        (folder / "task.json").write_text(dumps(task))
        passed = (*_NEEDED_BY_A_NODE, *task.passed) if task.command else tuple(os.environ)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), "0"),
                *(sys.executable, "-m", "autotuner.trials.process.node"),
                *("--task", str(folder / "task.json"), "--folder", str(folder / "node")),
                *("--node-rank", "0", "--master-address", "127.0.0.1", "--master-port", str(free_port())),
            ],
            env={**{name: os.environ[name] for name in passed if name in os.environ}, ATTEMPT_ID: task.job_name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return NodeProcess(process, task)

    def close(self) -> None:
        """Do nothing, because no process is kept ready for the next trial."""


class NodeProcess:
    """The ranks of a trial that are children of one node process on this machine."""

    def __init__(self, process: subprocess.Popen[bytes], task: NodeTask) -> None:
        assert process.stdout is not None  # a pipe was asked for
        self._process = process
        self._pipe = process.stdout
        self._attempt_id = task.job_name
        self._outputs = NodeOutputs(1, task.ranks_per_node)
        self._unread: list[NodeLine] = []
        self._was_told_to_end = False
        self._deaths: Sequence[Death] = ()
        self._stuck: tuple[int, ...] = ()
        self.peers_s = _PEERS_S
        os.set_blocking(self._pipe.fileno(), False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def has_ended(self) -> bool:
        """Return True if the node process and all its children have ended. Its last lines may still be unread."""
        return self._process.poll() is not None

    def poll(self) -> Sequence[NodeLine]:
        """Return the lines that the node printed since the last call."""
        self._read()
        lines, self._unread = self._unread, []
        return lines

    def end(self, why: Ending) -> AttemptEnd:
        """End the node process and its ranks: first with SIGTERM, then with SIGKILL.

        On SIGTERM, the node ends its ranks and then itself. All processes that are still alive afterwards get SIGKILL.
        """
        self._read()
        self._was_told_to_end = bool(self._outputs.told_to_end)  # by another process
        self._wait(_GRACE_S, tells_node=True)  # before its ranks, since otherwise it could not report how they ended
        self._process.terminate()  # the supervisor ends what the node has left
        self._stuck = end_all(self._attempt_id, grace_s=0.0, living=self._left)
        self._wait(_KILLED_S)
        if not self.has_ended():
            self._process.kill()
            self._process.wait()
        self._stuck = self._stuck or end_all(self._attempt_id, grace_s=0.0)
        self._read()
        self._pipe.close()
        end = self._outputs.attempt_end(timed_out=why == "timeout")
        self._deaths = end.deaths
        return end

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        """Return ``failure``, or ``Stopped`` if the trial did not cause it and may run again.

        This is the case if another program ended the node process or a rank, or used the port at which the ranks meet.
        """
        if self._was_told_to_end:
            return Stopped(reason="infrastructure", detail="the node received SIGTERM, and not from the autotuner")
        return if_port_taken(failure) or if_killed(failure, self._deaths) or with_stuck(failure, self._stuck)

    def _read(self) -> None:
        """Read the pipe until it is empty, since a node must not wait long for a full pipe."""
        with contextlib.suppress(BlockingIOError, ValueError):  # nothing new, or closed
            while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
                self._unread += self._outputs.read(0, chunk)

    def _wait(self, seconds: float, *, tells_node: bool = False) -> None:
        """Wait for the node's end and keep reading: a node whose pipe is full cannot report how it ended.

        If ``tells_node``, send SIGTERM to the node, as soon as the supervisor has started it.
        """
        deadline = time.monotonic() + seconds
        while not self.has_ended() and time.monotonic() < deadline:
            for node in self._nodes() if tells_node else ():
                tells_node = False
                with contextlib.suppress(psutil.Error):
                    node.terminate()
            self._read()
            time.sleep(_POLL_S)

    def _nodes(self) -> list[psutil.Process]:
        """Return the node's process, if it is alive, without other processes that the supervisor adopted."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self._process.pid).children()
            return [child for child in children if "autotuner.trials.process.node" in child.cmdline()]
        return []

    def _left(self, attempt_id: str) -> Iterator[psutil.Process]:
        """Yield the remaining processes of an attempt.

        These are the processes with the attempt's id in their environment and those that the supervisor adopted.
        """
        found = {process.pid: process for process in processes_of(attempt_id)}
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found[process.pid] = process
        yield from (process for pid, process in found.items() if pid != self._process.pid)


# Failures whose cause is not the trial.

_PORT_TAKEN = "address already in use"
"""Words of the system error EADDRINUSE, which torch repeats: another program took the port before the ranks
connected."""


def if_port_taken(failure: TrialFailure) -> Stopped | None:
    """Return ``Stopped`` if another process already used the port at which the ranks should meet, else None."""
    if _PORT_TAKEN in failure.log_tail.lower():
        return Stopped(reason="infrastructure", detail="another program used the port at which the nodes connect")
    return None


def if_killed(failure: TrialFailure, deaths: Sequence[Death]) -> Stopped | None:
    """Return ``Stopped`` if another program ended the failed rank with SIGKILL, else None.

    A rank does not send SIGKILL to itself. If the kernel sent SIGKILL because the memory was full, the failure is of
    another kind, and the result is None.
    """
    of_rank = [death.exit_code for death in deaths if death.rank == failure.rank]
    if failure.kind is FailureKind.CRASH and of_rank == [-signal.SIGKILL]:
        return Stopped(reason="infrastructure", detail=failure.message)
    return None


def with_stuck(failure: TrialFailure, pids: Sequence[int]) -> TrialFailure:
    """Add to the failure the ids of the processes that SIGKILL did not end; return it unchanged if there are none."""
    if not pids:
        return failure
    listed = ", ".join(map(str, pids))
    return replace(failure, message=f"{failure.message}; SIGKILL did not end process {listed}")


# The processes of one attempt at a trial: found by its id in their environment, ended for certain.

_KILLED_S = 1.0
"""Seconds to wait for a killed process. It is usually gone within milliseconds; it stays longer if the kernel waits for
a device on its behalf."""


def processes_of(attempt_id: str) -> Iterator[psutil.Process]:
    """Yield the live processes of a trial. They have the variable ``ATTEMPT_ID`` with this value in their environment.

    Each rank has its own session, so a process group would not contain all ranks.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(ATTEMPT_ID, "").strip() == attempt_id and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def end_all(
    attempt_id: str, *, grace_s: float, living: Callable[[str], Iterable[psutil.Process]] = processes_of
) -> tuple[int, ...]:
    """End all processes of a trial, and return when all are gone.

    The processes first get SIGTERM. The processes that are still alive after ``grace_s`` seconds get SIGKILL.

    Args:
        attempt_id: The value of ``ATTEMPT_ID`` in the environment of the processes.
        grace_s: Seconds between SIGTERM and SIGKILL.
        living: Returns the processes that have this value and are still alive.

    Returns:
        Ids of the processes that were still there a second after SIGKILL. Such a process is in a driver call that
        nothing can interrupt (state D).
    """
    for process in living(attempt_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline:
        if not any(living(attempt_id)):
            return ()
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _KILLED_S
    while (left := list(living(attempt_id))) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_POLL_S)
    stuck = tuple(process.pid for process in left)
    if stuck:
        _log.error("launcher.processes_stuck", attempt_id=attempt_id, pids=stuck)
    return stuck


def ask_for_stacks(attempt_id: str) -> None:
    """Ask every forked rank of a trial to write its Python stack to its log. The stacks show where a rank hangs.

    Args:
        attempt_id: The value of ``ATTEMPT_ID`` in the environment of the ranks.
    """
    for process in processes_of(attempt_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            # compilers that a rank started know no SIGUSR1
            if "autotuner.trials.process.fork_server" in process.cmdline():
                process.send_signal(signal.SIGUSR1)


# A port of this machine for ranks to meet at.

_PORTS = range(10_000, 20_000)
"""Range of ports for ranks. It lies below the ports that the kernel gives to outgoing connections (ip_local_port_range,
from 32768), so no connection takes one meanwhile."""

_CHOICE = random.SystemRandom()


def free_port() -> int:
    """Return a port at which no process listens now.

    The probability that another process chooses the same port is about one in ten thousand.
    """
    while True:
        port = _CHOICE.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
