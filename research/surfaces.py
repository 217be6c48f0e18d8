"""The time of each surface as a ratio to ``python -c "import numpy"``, measured in turn in the same run.

``python -m research.surfaces`` asks for layouts of Llama 3 70B on 64 H100s (over REST, with ``predict --server``, as
a page, with ``predict``), starts the service, and plans over all clusters of the catalog. Processor time depends least
on what else the machine does. REST and the page count the service and its helpers, ``start`` the service alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from statistics import median

import httpx
import psutil

NUM_RUNS = 3
JOB = ("--model", "llama-3-70b", "--seq-len", "8192", "--global-batch-size", "1024")
LIMITS = {"REST": 0.5, "--server": 2, "page": 1.5, "predict": None, "plan": 10, "start": 8, "first": 2}
"""Largest ratio of each surface; that of ``first`` is to the next request and not to numpy."""

Seconds = tuple[float, float]
"""Processor seconds and wall seconds."""


def main() -> None:
    """Print the ratios of all surfaces, by processor time and by wall time, and their limits."""
    taken: dict[str, list[Seconds]] = {}
    batches = count(64, 64)
    for _ in range(NUM_RUNS):
        measured = {"numpy": _run(sys.executable, "-c", "import numpy")}
        with _service() as (started, service, client):
            measured["start"] = started
            measured["first"], measured["next"] = (_post(client, service, next(batches)) for _ in range(2))
            measured["REST"] = _post(client, service, next(batches))
            measured["page"] = _page(client, service, next(batches))
            at = ("--cluster", "h100:64")
            measured["--server"] = _command("predict", *JOB, *at, "--server", str(client.base_url))
        measured["predict"] = _command("predict", *JOB, *at)
        measured["plan"] = _command("plan", *JOB, "--tokens", "1e12")
        for name, seconds in measured.items():
            taken.setdefault(name, []).append(seconds)
    cpu, wall = ({name: median(run[kind] for run in runs) for name, runs in taken.items()} for kind in (0, 1))
    _say(f"numpy      {cpu['numpy']:.3f} s of processor time, {wall['numpy']:.3f} s of wall time")
    for name, limit in LIMITS.items():
        base = "next" if name == "first" else "numpy"
        by_cpu, by_wall = (kind[name] / kind[base] for kind in (cpu, wall))
        _say(f"{name:10} {by_cpu:6.2f} by processor time, {by_wall:6.2f} by wall time, limit {limit}")


def _run(*command: str) -> Seconds:
    """Return the seconds of a command with its children."""
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - before


def _command(*words: str) -> Seconds:
    return _run(sys.executable, "-m", "autotuner.cli", *words)


@contextmanager
def _service() -> Iterator[tuple[Seconds, psutil.Process, httpx.Client]]:
    """Start a service, and yield the seconds until it was ready, its process and a client."""
    with tempfile.TemporaryDirectory() as folder, httpx.Client(base_url="http://127.0.0.1:8123", timeout=60) as client:
        settings = {"DATABASE_URL": f"sqlite:///{folder}/speed.db", "PORT": "8123", "NUM_WORKERS": "0"}
        env = {**os.environ, **{f"AUTOTUNER_{name}": value for name, value in settings.items()}}
        subprocess.run(
            [sys.executable, "-m", "autotuner.cli", "migrate"], env=env, check=True, stdout=subprocess.DEVNULL
        )
        before, log = time.perf_counter(), subprocess.DEVNULL
        process = subprocess.Popen([sys.executable, "-m", "autotuner.cli", "serve"], env=env, stdout=log, stderr=log)
        try:
            service = psutil.Process(process.pid)
            while not _is_ready(client):
                time.sleep(0.01)
            own = service.cpu_times()
            yield (own.user + own.system, time.perf_counter() - before), service, client
        finally:
            process.terminate()
            process.wait()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/api/v1/ready").is_success
    except httpx.TransportError:
        return False


def _cpu_s(service: psutil.Process) -> float:
    """Return the processor seconds of the service and of its helpers, including helpers that have ended."""
    times = [process.cpu_times() for process in (service, *service.children(recursive=True))]
    return sum(one.user + one.system + one.children_user + one.children_system for one in times)


def _timed(service: psutil.Process, ask: Callable[[], httpx.Response]) -> Seconds:
    cpu_s, before = _cpu_s(service), time.perf_counter()
    ask().raise_for_status()
    wall_s = time.perf_counter() - before
    return _cpu_s(service) - cpu_s, wall_s


def _post(client: httpx.Client, service: psutil.Process, batch: int) -> Seconds:
    workload = {"seq_len": 8192, "global_batch_size": 1024 + batch}
    body = {"model": "llama-3-70b", "cluster": "h100:64", "workload": workload}
    return _timed(service, lambda: client.post("/api/v1/predictions", json=body))


def _page(client: httpx.Client, service: psutil.Process, batch: int) -> Seconds:
    asked = {"model": "llama-3-70b", "cluster": "h100:64", "seq_len": "8192", "global_batch_size": str(1024 + batch)}
    return _timed(service, lambda: client.get("/predict", params=asked, headers={"Accept": "text/html"}))


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a benchmark prints its result


if __name__ == "__main__":
    main()
