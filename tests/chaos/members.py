"""Services and workers as processes of their own, which can be killed, stopped, and told another time."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Literal

import httpx

from api.main import create_app
from autotuner.bootstrap import build
from autotuner.cli.server import run_server
from autotuner.settings import Settings
from tests.chaos.launcher import deterministic_launcher
from tests.system.service import until

__all__ = ["LEASE_S", "MARK", "Kind", "Member", "MemberSpec", "context"]

Kind = Literal["service", "worker"]

LEASE_S = 1.0
"""Short, so that what outlasts it is soon over."""

MARK = "AUTOTUNER_CHAOS"
"""A variable in the environment of every process of a member, and of those that these start."""

_POLL_S = 0.05
_START_S = 60.0
_PRELOADED = ["autotuner.search.sweeps.worker", "autotuner.search.upkeep.retunes.scheduler", "psycopg", __name__]
"""What a service imports once it works, so that each life begins at once."""


def context() -> ForkServerContext:
    """Where members come from: a process that has imported what they need, and has no threads."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_PRELOADED)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """What a process is to be.

    Attributes:
        name: Of its log, too.
        kind: A service takes requests and runs sweeps, a worker runs sweeps.
        folder: For logs, and for the files of trials: all members of a machine may have the same.
        mark: The value of ``MARK``.
    """

    name: str
    kind: Kind
    url: str
    folder: Path
    port: int
    mark: str

    @property
    def work_dir(self) -> Path:
        return self.folder / "trials"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"


class _ShiftedClock:
    """A clock that somebody else may put forward and back while it runs; only its wall time jumps."""

    def __init__(self, shift_s: Synchronized[float]) -> None:
        self._shift_s = shift_s

    def now(self) -> float:
        return time.time() + self._shift_s.value

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _live(spec: MemberSpec, shift_s: Synchronized[float], parent: Connection) -> None:
    """What ``autotuner serve`` and ``autotuner worker`` do, with trials that are the same every time."""
    log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ[MARK] = spec.mark
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    settings = Settings(
        database_url=spec.url, work_dir=spec.work_dir, lease_s=LEASE_S, poll_s=_POLL_S, port=spec.port, host="127.0.0.1"
    )
    launcher = deterministic_launcher(spec.work_dir, spec.folder)
    app = build(settings, launcher=launcher, clock=_ShiftedClock(shift_s))
    if spec.kind == "service":
        run_server(create_app(app), settings.host, settings.port)
    else:
        signal.signal(signal.SIGTERM, lambda *_: app.background.request_stop())
        app.background.work()
    app.close()


def _end_with(parent: Connection) -> None:
    """End this process with the one that started it, which says nothing until then."""
    try:
        parent.recv()
    except EOFError:
        os._exit(1)


class Member:
    """A service or worker: the same in every life of its process."""

    def __init__(self, spec: MemberSpec, made_by: ForkServerContext) -> None:
        self.spec = spec
        self._context = made_by
        self._shift_s: Synchronized[float] = made_by.Value(ctypes.c_double, 0.0)
        self._process: ForkServerProcess | None = None
        self._parent_end: Connection | None = None

    def start(self) -> None:
        """Begin a life, unless one goes on; returns when a service takes requests."""
        if self.is_alive:
            return
        here, there = self._context.Pipe()
        self._parent_end = here
        self._process = self._context.Process(target=_live, args=(self.spec, self._shift_s, there))
        self._process.start()
        there.close()

    def wait_until_it_answers(self) -> None:
        """Return when it takes requests; a worker takes none."""
        if self.spec.kind == "service":
            until(f"{self.spec.name} to answer", self._answers, _START_S)

    @property
    def is_alive(self) -> bool:
        """Whether its process lives, stopped or not."""
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """Of a service, below which its resources are."""
        return f"http://127.0.0.1:{self.spec.port}/api/v1"

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is cleaned up."""
        assert self._process is not None
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        """SIGTERM: it gives back what it has, and ends."""
        assert self._process is not None
        self._process.terminate()
        self._process.join(30.0)
        assert not self._process.is_alive(), f"{self.spec.name} does not end"

    def stop(self) -> None:
        """SIGSTOP: it does nothing, and does not know."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT: as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)

    def put_clock(self, shift_s: float) -> None:
        """Have its clock show so much more than it is."""
        self._shift_s.value = shift_s

    def _answers(self) -> bool:
        assert self.is_alive, f"{self.spec.name} ended: {self.spec.log.read_text()[-2000:]}"
        try:
            return httpx.get(f"{self.url}/health").is_success
        except httpx.TransportError:
            return False
