"""The services and workers that faults strike, the client that asks them, and the processes that they started."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

from tests.system.service import until

# ---------------------------------------------------------------- members

Kind = Literal["service", "worker"]

LEASE_S = 1.0
"""Short, so that what outlasts it is soon over."""

MARK = "AUTOTUNER_CHAOS"
"""A variable in the environment of every process of a member, and of those that these start."""

_START_S = 60.0
_PRELOADED = [
    "autotuner.runs.sweep_trials",
    "autotuner.runs.retune_clock",
    "psycopg",
    "tests.chaos.life",
]
"""What a service imports once it works, so that each life begins at once."""


def context() -> ForkServerContext:
    """Where members come from: a process that has imported what they need, and has no threads."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_PRELOADED)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """What a process is to be."""

    name: str
    """Of its log, too."""
    kind: Kind
    """A service takes requests and runs sweeps, a worker runs sweeps."""
    url: str
    folder: Path
    """For logs, and for the files of trials: all members of a machine may have the same."""
    port: int
    mark: str
    """The value of ``MARK``."""

    @property
    def work_dir(self) -> Path:
        return self.folder / "trials"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"


def _live(spec: MemberSpec, shift_s: Synchronized[float], parent: Connection) -> None:
    from tests.chaos.life import live  # noqa: PLC0415  # what a service imports, nobody else of this package needs

    live(spec, shift_s, parent)


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


# ---------------------------------------------------------------- client

_TIMEOUT_S = 3.0
_DEADLINE_S = 90.0
_RETRY_S = 0.1


def create_sweep(services: Sequence[Member], body: dict[str, Any], key: str) -> str:
    """The id of the sweep, once a service has said that there is one."""
    deadline = time.monotonic() + _DEADLINE_S
    last: object = None
    while time.monotonic() < deadline:
        for service in services:
            try:
                answer = httpx.post(
                    f"{service.url}/sweeps", json=body, headers={"Idempotency-Key": key}, timeout=_TIMEOUT_S
                )
            except httpx.TransportError as error:
                last = error
                continue
            if answer.is_success:
                sweep_id: str = answer.json()["id"]
                return sweep_id
            assert answer.status_code in (503, 504), f"{answer.status_code}: {answer.text}"
            last = answer.text
        time.sleep(_RETRY_S)
    raise TimeoutError(f"no service took the sweep: {last}")


def unexpected_answer(service: Member, path: str) -> str | None:
    """What a service says to a reader that no fault excuses; it may be away, or say that the database is."""
    try:
        answer = httpx.get(f"{service.url}{path}", timeout=_TIMEOUT_S)
    except httpx.TransportError:
        return None
    if answer.is_success or answer.status_code in (503, 504):
        return None
    return f"GET {path} of {service.spec.name}: {answer.status_code} {answer.text[:300]}"


# ---------------------------------------------------------------- processes


def marked(mark: str) -> Iterator[psutil.Process]:
    """Every live process that a member is or started, itself or by another."""
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if is_ours:
            yield process


def orphans(mark: str, members: Sequence[Member]) -> list[str]:
    """Marked processes that do not descend from a live member."""
    alive = {member.pid for member in members if member.is_alive}
    return [_shown(process) for process in marked(mark) if not alive & _ancestors(process)]


def _ancestors(process: psutil.Process) -> set[int]:
    try:
        return {process.pid, *(parent.pid for parent in process.parents())}
    except psutil.NoSuchProcess:
        return {process.pid}


def _shown(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:80]}"
    except psutil.NoSuchProcess:
        return str(process.pid)
