"""Ranks forked from processes that have imported torch and are kept from trial to trial: milliseconds to start.

``Forks`` keeps such processes, ``Zygote`` is one of them (``python -m trials.process.zygote``), and ``ForkedRanks`` are
the ranks of one trial.
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

from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.ranks import ATTEMPT_ID, Death, Ranks, end_all
from autotuner.launch.reports import TrialFiles

_ID_WIDTH = 200
"""Characters that the process keeps free for the id of an attempt: a trial's id and a few more."""

_TASK = "trials.process.task:run_trial"

_REAPING_S = 2.0
"""A process that is well tells of its children's end within milliseconds."""

_POLL_S = 0.01
_CHUNK_BYTES = 1 << 16
_LOG_BYTES = 1 << 16


class Forks:
    """Starts ranks by zygotes: one per trial that runs, so that whatever ends one trial's spares the others'.

    The first trial waits for torch to be imported; later ones find an idle zygote, unless more run at once than before.

    Args:
        task: What each rank does, as ``Zygote.start`` has it.
    """

    def __init__(self, task: str = _TASK) -> None:
        self._task = task
        self._mutex = threading.Lock()
        self._zygotes: list[Zygote] = []

    def start(self, spec: TrialSpec, files: TrialFiles, environment: Mapping[str, str]) -> Ranks:
        """Start ranks as ``Starter`` says."""
        with self._mutex:
            zygote = self._idle_zygote()
            return zygote.start(self._task, files.directory, spec.layout.world_size, environment)

    def close(self) -> None:
        """End the zygotes, and with them whatever they forked."""
        with self._mutex:
            for zygote in self._zygotes:
                zygote.close()
            self._zygotes.clear()

    def _idle_zygote(self) -> Zygote:
        for dead in [zygote for zygote in self._zygotes if zygote.is_idle and not zygote.is_alive]:
            dead.close()
            self._zygotes.remove(dead)
        idle = next((zygote for zygote in self._zygotes if zygote.is_idle), None)
        if idle is None:
            idle = Zygote()
            self._zygotes.append(idle)
        return idle


class Zygote:
    """A process that forks ranks; it ends when nobody can write to it any more, so it does not outlive its launcher."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trials.process.zygote", ATTEMPT_ID],
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
        """The process's id."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """Whether no launcher follows ranks that it has forked."""
        return not self._served

    @property
    def is_alive(self) -> bool:
        """Whether it can still fork."""
        return self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self._process.poll() == -signal.SIGKILL

    def start(self, task: str, folder: Path, num_ranks: int, environment: Mapping[str, str]) -> ForkedRanks:
        """Have so many ranks do a task; returns before they run, even before torch is imported.

        Args:
            task: ``module:function``, a ``trials.process.task.Task``.
            folder: Of this request alone; gets what the ranks print, below ``ranks``.
            num_ranks: All on this host.
            environment: Variables that the ranks get; ``ATTEMPT_ID`` is one, with a value of this request alone.
        """
        attempt_id = environment[ATTEMPT_ID]
        orders = {"task": task, "folder": str(folder), "num_ranks": num_ranks, "environment": dict(environment)}
        ranks = ForkedRanks(self, attempt_id, num_ranks)
        self._served[attempt_id] = ranks
        self._requests.write(json.dumps({"id": attempt_id, **orders}).encode() + b"\n")
        self._requests.flush()
        return ranks

    def listen(self) -> None:
        """Pass on what it has told since the last time."""
        while chunk := self._read():
            *lines, self._unfinished_line = (self._unfinished_line + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if ranks := self._served.get(event["id"]):
                    ranks.heard(event)

    def forget(self, ranks: ForkedRanks) -> None:
        """Pass nothing on to these any more."""
        self._served.pop(ranks.attempt_id, None)

    def log(self) -> str:
        """The last of what it wrote to its standard error."""
        if not self._errors.closed:
            descriptor, size = self._errors.fileno(), os.fstat(self._errors.fileno()).st_size
            self._last_words = os.pread(descriptor, _LOG_BYTES, max(0, size - _LOG_BYTES)).decode(errors="replace")
        return self._last_words

    def close(self) -> None:
        """End it, and with it whatever it forked."""
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
    """The ``Ranks`` that a zygote was asked for.

    Attributes:
        attempt_id: Found in the environment of their processes.
        has_started: All are forked.
        exit_codes: Of the ranks that are gone, however they ended; below zero is the signal.
    """

    def __init__(self, zygote: Zygote, attempt_id: str, num_ranks: int) -> None:
        self._zygote = zygote
        self._num_ranks = num_ranks
        self._deaths: list[Death] = []
        self._refusal = ""
        self.has_started = False
        self._is_ending = False
        self.attempt_id = attempt_id
        self.exit_codes: dict[int, int] = {}

    def heard(self, event: Mapping[str, Any]) -> None:
        """Take an event of these ranks; the zygote calls it."""
        match event["event"]:
            case "started":
                self.has_started = True
            case "refused":
                self._refusal = event["reason"]
            case "ended":
                self.exit_codes[event["rank"]] = event["exit_code"]
                if event["exit_code"] and not self._is_ending:
                    self._deaths.append(Death(rank=event["rank"], exit_code=event["exit_code"]))

    def ended(self) -> bool:
        """Whether all are gone, or there never will be one."""
        self._zygote.listen()
        if not (self._is_ending or self._zygote.is_alive):
            self._died_with_zygote()
        return len(self.exit_codes) == self._num_ranks or bool(self._refusal) or not self._zygote.is_alive

    def _died_with_zygote(self) -> None:
        """Nobody is left to tell how they ended: as soon as it was gone, the kernel killed those that it had forked."""
        if not (self.has_started or self._zygote.was_killed):
            return
        for rank in set(range(self._num_ranks)) - self.exit_codes.keys():
            self.heard({"event": "ended", "rank": rank, "exit_code": -signal.SIGKILL})

    def deaths(self) -> Sequence[Death]:
        """Ranks that died of themselves, in the order in which the zygote saw them."""
        return self._deaths

    def log(self) -> str:
        """Why none was started, or what the zygote wrote last."""
        return self._refusal or self._zygote.log()

    def end(self, *, grace_s: float) -> tuple[int, ...]:
        """End those that are left; with the zygote, if it has not forked them yet or does not see them gone.

        Returns:
            Pids of processes that SIGKILL did not end; see ``end_all``.
        """
        is_over = self.ended()
        self._is_ending = True
        if not (self.has_started or is_over):
            self._zygote.close()  # it would fork them later
        stuck = end_all(self.attempt_id, grace_s=grace_s)
        deadline = time.monotonic() + (0.0 if stuck else _REAPING_S)
        while not self.ended() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not self.ended():
            self._zygote.close()
        self._zygote.forget(self)
        return stuck
