"""Starts ranks within milliseconds: it forks them from processes that have imported torch and stay from trial to trial.

``Forks`` keeps such processes, ``ForkServer`` is one of them (``python -m autotuner.trials.process.fork_server``), and
``ForkedRanks`` are the ranks of one trial.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotuner.core.codec import dumps
from autotuner.core.node_line import Death, NodeLine
from autotuner.core.trial import Stopped, TrialFailure
from autotuner.core.trial_spec import NodeTask
from autotuner.host.supervisor import kernel_oom_kills
from autotuner.launch.contract import ATTEMPT_ID, AttemptEnd, Ending, Ranks
from autotuner.launch.lines import LineReader
from autotuner.launch.node_processes import ask_for_stacks, end_all, if_killed, with_stuck

_ID_WIDTH = 200
"""Number of characters that the process reserves for the id of an attempt: the id of a trial and a few more."""

_TASK = "autotuner.trials.process.task:run_trial"

_GRACE_S = 3.0
"""Seconds that a rank gets to exit after SIGTERM, or to report a peer's death; gloo needed about one second."""

_STACKS_S = 0.5
"""Time that ranks get to write their stacks when a trial has run out of time."""

_OVERTIME_S = 1.0
"""Seconds that ranks get to exit after that. A trial must not exceed its limit by more than five seconds, and a rank
that hangs does not exit anyway."""

_REAPING_S = 2.0
"""Seconds to wait for a fork server's report that its ranks ended; a working fork server needs milliseconds."""

_POLL_S = 0.01
_CHUNK_BYTES = 1 << 16
_LOG_BYTES = 1 << 16


class Forks:
    """Starts ranks by fork servers (processes that have imported torch and fork ranks), one for each trial that runs.

    Because trials do not share a fork server, a failure of one trial does not end another. The first trial waits for
    the import of torch. A later trial uses an idle fork server if there is one.

    Args:
        task: The function that each rank runs, as ``module:function``; see ``ForkServer.start``.
    """

    slack_s = 0.0

    def __init__(self, task: str = _TASK) -> None:
        self._task = task
        self._mutex = threading.RLock()
        self._fork_servers: list[ForkServer] = []

    def start(self, task: NodeTask, folder: Path) -> Ranks:
        """Start the ranks of a trial by asking a fork server for forks; see ``Starter.start``."""
        assert task.spec is not None  # benchmarks and trainers run in a node process
        (folder / "ranks").mkdir()
        (folder / "spec.json").write_text(dumps(task.spec))
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **task.variables}
        with self._mutex:
            fork_server = self.idle_fork_server()
            return fork_server.start(self._task, folder, task.ranks_per_node, {**variables, ATTEMPT_ID: task.job_name})

    def idle_fork_server(self) -> ForkServer:
        """Return a fork server that no trial uses.

        If there is none, the method starts one.
        """
        with self._mutex:
            for dead in [one for one in self._fork_servers if one.is_idle and not one.is_alive]:
                dead.close()
                self._fork_servers.remove(dead)
            idle = next((one for one in self._fork_servers if one.is_idle), None)
            if idle is None:
                idle = ForkServer()
                self._fork_servers.append(idle)
            return idle

    def close(self) -> None:
        """End all fork servers and all processes that they forked."""
        with self._mutex:
            for fork_server in self._fork_servers:
                fork_server.close()
            self._fork_servers.clear()


class ForkServer:
    """A process that has imported torch and forks ranks. It ends when its launcher ends."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autotuner.trials.process.fork_server", ATTEMPT_ID],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, ATTEMPT_ID: " " * _ID_WIDTH, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._unfinished_line = b""
        self._last_words = ""
        self._served: dict[str, ForkedRanks] = {}

    @property
    def pid(self) -> int:
        """Return the process id of this fork server."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """Return True if no trial uses ranks of this fork server at the moment."""
        return not self._served

    @property
    def is_alive(self) -> bool:
        """Return True if this fork server still runs and can fork more ranks."""
        return self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        """Return True if SIGKILL ended this fork server."""
        return self._process.poll() == -signal.SIGKILL

    def start(self, task: str, folder: Path, num_ranks: int, environment: Mapping[str, str]) -> ForkedRanks:
        """Ask this process, which has imported torch, to fork ``num_ranks`` ranks.

        The method returns without waiting for the ranks or for the import of torch.

        Args:
            task: The function that each rank calls, as ``module:function``; its type is
                ``autotuner.trials.process.task.Task``.
            folder: A folder for this request only. Its subfolder ``ranks`` gets the output of the ranks.
            num_ranks: Number of ranks, all on this host.
            environment: Environment variables of the ranks. ``ATTEMPT_ID`` must be among them, with a unique value.
        """
        attempt_id = environment[ATTEMPT_ID]
        orders = {"task": task, "folder": str(folder), "num_ranks": num_ranks, "environment": dict(environment)}
        ranks = ForkedRanks(self, attempt_id, num_ranks, folder)
        self._served[attempt_id] = ranks
        self._requests.write(json.dumps({"id": attempt_id, **orders}).encode() + b"\n")
        self._requests.flush()
        return ranks

    def listen(self) -> None:
        """Read the new events of this fork server, such as the exit of a rank.

        Each event is passed to the ranks that it describes.
        """
        while chunk := self._read():
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if ranks := self._served.get(event["id"]):
                    ranks.heard(event)

    def forget(self, ranks: ForkedRanks) -> None:
        """Stop passing events (such as the exit of a rank) to these ranks, because their trial is over."""
        self._served.pop(ranks.attempt_id, None)

    def log(self) -> str:
        """Return the last part of the text that this fork server wrote to standard error."""
        if not self._errors.closed:
            descriptor, size = self._errors.fileno(), os.fstat(self._errors.fileno()).st_size
            self._last_words = os.pread(descriptor, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
        return self._last_words

    def close(self) -> None:
        """End this fork server and all ranks that it forked."""
        if self._errors.closed:
            return
        self.log()
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _read(self) -> bytes:
        if self._answers.closed:
            return b""
        try:
            return os.read(self._answers.fileno(), _CHUNK_BYTES)
        except BlockingIOError:  # nothing new
            return b""


class ForkedRanks:
    """The ranks that a fork server was asked to fork for one trial.

    Attributes:
        attempt_id: The value of ``ATTEMPT_ID`` in the environment of their processes.
        has_started: True once all ranks are forked.
        exit_codes: Exit codes of the ranks that have ended, by rank; a negative number is a signal.
        deaths: Ranks that failed and that this launcher did not end, in the order in which the server noticed them.
    """

    def __init__(self, fork_server: ForkServer, attempt_id: str, num_ranks: int, folder: Path) -> None:
        self._fork_server = fork_server
        self._num_ranks = num_ranks
        self._folder = folder
        self._reader = LineReader()
        self._offset = 0
        self._num_deaths_told = 0
        self._refusal = ""
        self._is_ending = False
        self._oom_kills = kernel_oom_kills()
        self._stuck: tuple[int, ...] = ()
        self.peers_s = _GRACE_S
        self.has_started = False
        self.attempt_id = attempt_id
        self.exit_codes: dict[int, int] = {}
        self.deaths: list[Death] = []

    def heard(self, event: Mapping[str, Any]) -> None:
        """Take in an event about these ranks from the process that forks them, such as the exit of a rank."""
        match event["event"]:
            case "started":
                self.has_started = True
            case "refused":
                self._refusal = event["reason"]
            case "ended":
                self.exit_codes[event["rank"]] = event["exit_code"]
                if event["exit_code"] and not self._is_ending:
                    self.deaths.append(Death(rank=event["rank"], exit_code=event["exit_code"]))

    def has_ended(self) -> bool:
        """Return True if all ranks have ended, or if none of them will ever start."""
        self._fork_server.listen()
        if not (self._is_ending or self._fork_server.is_alive):
            self._died_with_fork_server()
        return len(self.exit_codes) == self._num_ranks or bool(self._refusal) or not self._fork_server.is_alive

    def _died_with_fork_server(self) -> None:
        """Record that the remaining ranks died of SIGKILL, because the kernel kills them with their fork server."""
        if not (self.has_started or self._fork_server.was_killed):
            return
        for rank in set(range(self._num_ranks)) - self.exit_codes.keys():
            self.heard({"event": "ended", "rank": rank, "exit_code": -signal.SIGKILL})

    def poll(self) -> Sequence[NodeLine]:
        """Return the lines that the ranks wrote, and the ranks that died, since the last call."""
        deaths, self._num_deaths_told = self.deaths[self._num_deaths_told :], len(self.deaths)
        path, chunk = self._folder / "reports.jsonl", b""
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        self._offset += len(chunk)
        return [*self._reader.read(chunk), *deaths]

    def log(self) -> str:
        """Return the reason why no rank was started, or else the last part of the forking process's standard error."""
        return self._refusal or self._fork_server.log()

    def end(self, why: Ending) -> AttemptEnd:
        """End the ranks that are left, and return how the ranks ended.

        The fork server is ended, too, if it has not forked all ranks yet, or if it does not notice that they are gone.
        """
        is_over = self.has_ended()
        self._is_ending = True
        if not (self.has_started or is_over):
            self._fork_server.close()  # otherwise, it would fork them later
        self._stuck = end_all(self.attempt_id, grace_s=self._grace_s(why))
        deadline = time.monotonic() + (0.0 if self._stuck else _REAPING_S)
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not self.has_ended():
            self._fork_server.close()
        self._fork_server.forget(self)
        logs = sorted((self._folder / "ranks").glob("*/stderr.log"))
        return AttemptEnd(
            deaths=self.deaths,
            rank_logs={int(path.parent.name): path.read_text(errors="replace") for path in logs},
            log=self.log(),
            timed_out=why == "timeout",
            oom_killed=kernel_oom_kills() > self._oom_kills,
        )

    def _grace_s(self, why: Ending) -> float:
        """Return the seconds that ranks get to exit: none once they have reported everything.

        Ranks that exceeded the time limit are first asked to write their stacks.
        """
        match why:
            case "measured":
                return 0.0
            case "timeout":
                ask_for_stacks(self.attempt_id)
                time.sleep(_STACKS_S)
                return _OVERTIME_S
            case _:
                return _GRACE_S

    def explain(self, failure: TrialFailure) -> TrialFailure | Stopped:
        """Return ``failure``, or ``Stopped`` if another program killed a rank or the process that forked it.

        A stopped trial may run again; a failed trial is finished.
        """
        return if_killed(failure, self.deaths) or with_stuck(failure, self._stuck)
