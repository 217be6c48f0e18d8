"""The service as an operator runs it: a process, started, killed and asked over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from autotuner.launch.node_processes import free_port
from tests.patience import PATIENCE_S


def until(what: str, ask: Callable[[], Any], deadline_s: float = PATIENCE_S) -> Any:
    """The first answer that is not false or None.

    Raises:
        TimeoutError: There was none in time.
    """
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.1)
    raise TimeoutError(what)


def measuring(num_steps: int, **changes: Any) -> dict[str, Any]:
    """Settings of trials that measure so many steps behind one to warm up, and nothing else."""
    steps = {"measured_steps": num_steps, "max_measured_steps": num_steps}
    return {"warmup_steps": 1, "max_warmup_steps": 1, **steps, "profiled_steps": 0, "max_repeats": 0, **changes}


class Service:
    """``autotuner serve`` on a SQLite file of its own; leaving the block stops it in good order.

    Attributes:
        variables: Of its environment, beside those of the tests; changed, they hold from its next start on.
    """

    def __init__(self, directory: Path, *, lease_s: float = 2.0) -> None:
        self._directory = directory
        self._lease_s = lease_s
        self.variables: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()

    def __enter__(self) -> Service:
        environment = {
            **os.environ,
            "AUTOTUNER_DATABASE_URL": f"sqlite:///{self._directory}/autotuner.db",
            "AUTOTUNER_WORK_DIR": str(self._directory / "trials"),
            "AUTOTUNER_LEASE_S": str(self._lease_s),
            "AUTOTUNER_POLL_S": "0.2",
            **self.variables,
        }
        command = [sys.executable, "-m", "autotuner.cli", "serve", "--port", str(self._port)]
        with (self._directory / "service.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            until("the service to get ready", self._is_ready)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it logged: {self.log}") from error
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is cleaned up."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=PATIENCE_S)

    @property
    def log(self) -> str:
        """What it has logged so far, over all its starts."""
        return (self._directory / "service.log").read_text()

    def get(self, path: str) -> Any:
        """The body of a GET below /api/v1."""
        return httpx.get(f"{self._url}{path}", timeout=PATIENCE_S).raise_for_status().json()

    def post(self, path: str, body: Any) -> Any:
        """The body of a POST below /api/v1."""
        return httpx.post(f"{self._url}{path}", json=body, timeout=PATIENCE_S).raise_for_status().json()

    def put(self, path: str, body: Any) -> Any:
        """The body of a PUT below /api/v1."""
        return httpx.put(f"{self._url}{path}", json=body, timeout=PATIENCE_S).raise_for_status().json()

    def trials(self, sweep_id: str) -> list[dict[str, Any]]:
        """Of a sweep, in short, in their order."""
        items: list[dict[str, Any]] = self.get(f"/sweeps/{sweep_id}/trials")["items"]
        return items

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def _url(self) -> str:
        return f"{self.address}/api/v1"

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the service ended: {self.log}"
        try:
            return httpx.get(f"{self._url}/ready").is_success
        except httpx.TransportError:
            return False
