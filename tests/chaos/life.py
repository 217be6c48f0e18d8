"""The life of a service or worker, from its start to whatever ends it."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from autotuner.api.main import create_app
from autotuner.cli.service import run_server
from autotuner.service.build import build
from autotuner.service.settings import Settings
from tests.chaos.launcher import deterministic_launcher
from tests.chaos.members import LEASE_S, MARK, MemberSpec

_POLL_S = 0.05


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


def live(spec: MemberSpec, shift_s: Synchronized[float], parent: Connection) -> None:
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
