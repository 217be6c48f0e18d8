"""How long a sweep waits for its next worker: from the start of a service after the last one died until it goes on.

``python -m bench.restart_time [LEASE_S]`` runs a sweep of tiny real trials on this machine's cores with a service in a
process of its own, ends that while a trial runs, once in good order (SIGTERM) and once by SIGKILL, starts another on
the same database, and prints the seconds from its start until it is ready and until it has taken the sweep up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from autotuner.core.units import format_seconds
from autotuner.launch.ranks import free_port

_DEADLINE_S = 120.0

_MODEL = {
    "name": "tiny",
    "num_layers": 4,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 256,
}

_SWEEP: dict[str, Any] = {
    "model": _MODEL,
    "cluster": "cpu:2",
    "workload": {"global_batch_size": 8, "seq_len": 64},
    "trial": {"measured_steps": 2000, "timeout_s": 300.0},
    "budget": {"num_trials": 2},
}


def main(lease_s: float) -> None:
    """Print how long each kind of restart takes."""
    for name, number in (("SIGTERM", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)):
        with tempfile.TemporaryDirectory(prefix="autotuner-restart-") as folder:
            ready_s, resumed_s = _restarted(Path(folder), number, lease_s)
        taken = f"ready after {format_seconds(ready_s)}, sweep resumed after {format_seconds(resumed_s)}"
        sys.stdout.write(f"{name}, lease {lease_s:g} s: {taken}\n")
        sys.stdout.flush()


def _restarted(folder: Path, number: int, lease_s: float) -> tuple[float, float]:
    port = free_port()
    address = f"http://127.0.0.1:{port}/api/v1"
    first = _start(folder, port, lease_s)
    try:
        _until(lambda: _answers(address))
        sweep_id = httpx.post(f"{address}/sweeps", json=_SWEEP, timeout=60).raise_for_status().json()["id"]
        _until(lambda: _num_events(folder, sweep_id, "trial.step"))
    finally:
        first.send_signal(number)
        first.wait()
    started_at = time.monotonic()
    second = _start(folder, port, lease_s)
    try:
        _until(lambda: _answers(address))
        ready_s = time.monotonic() - started_at
        _until(lambda: _num_events(folder, sweep_id, "sweep.resumed"))
        return ready_s, time.monotonic() - started_at
    finally:
        second.terminate()
        second.wait()


def _start(folder: Path, port: int, lease_s: float) -> subprocess.Popen[bytes]:
    variables = {
        "AUTOTUNER_DATABASE_URL": f"sqlite:///{folder}/autotuner.db",
        "AUTOTUNER_WORK_DIR": f"{folder}/trials",
        "AUTOTUNER_LEASE_S": str(lease_s),
    }
    command = [sys.executable, "-m", "autotuner.cli", "serve", "--port", str(port)]
    with (folder / "service.log").open("ab") as log:
        return subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log)


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/ready").is_success
    except httpx.TransportError:
        return False


def _num_events(folder: Path, sweep_id: str, kind: str) -> int:
    """Asked of the database: what is timed is the service, not its answers."""
    from autotuner.store.sql import open_store  # noqa: PLC0415  # after the service has made the file

    store = open_store(f"sqlite:///{folder}/autotuner.db")
    try:
        return sum(event.kind == kind for event in store.events(sweep_id))
    finally:
        store.close()


def _until(ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not ask():
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not get so far")
        time.sleep(0.05)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 15.0)
