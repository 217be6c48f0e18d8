"""How a service answers a team: lists, rankings, trials, pages, predictions and event streams, in one run.

``python -m bench.service_load`` fills an SQLite file, and a PostgreSQL database with ``--postgresql``, with 10 and with
1,000 sweeps of 200 trials each, serves each from a process of its own on loopback, and prints what callers of other
processes wait: p50 and p99, and how both stores compare. Then 200 readers follow four sweeps that four workers run,
on trials that nobody runs. ``make bench`` does not run it: its answer holds for the machine and the hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.filled_store import COPIED, database, fill

_WORKLOAD = {"seq_len": 4096, "global_batch_size": 1024}

_READS: Mapping[str, str] = {
    "list of sweeps": "/api/v1/sweeps",
    "list, page behind 9 sweeps": "/api/v1/sweeps?limit=50&offset=9",
    "sweep": f"/api/v1/sweeps/{COPIED}",
    "trials of a sweep": f"/api/v1/sweeps/{COPIED}/trials",
    "ranking of a sweep": f"/api/v1/sweeps/{COPIED}/ranking",
    "ranking of all": "/api/v1/ranking",
    "trial": f"/api/v1/trials/{COPIED}-0007",
    "page of all sweeps": "/",
    "page of a sweep": f"/sweeps/{COPIED}",
    "page of a trial": f"/trials/{COPIED}-0007",
}

_PREDICTIONS: Mapping[str, Any] = {
    f"prediction, {size} GPUs": {"model": "llama-3-70b", "cluster": f"h100:{size}", "workload": _WORKLOAD}
    for size in (64, 1024)
}

_NUM_CALLERS = 8
_NUM_READERS = 200
_NUM_SWEEPS_RUN = 4

_SWEEP = {
    "model": "llama-3-8b",
    "cluster": {"base": "h100:8", "name": "pretended", "engine": "simulated", "queue": "watched"},
    "workload": {"seq_len": 4096, "global_batch_size": 64},
    "budget": {"num_trials": 3, "min_gain": 0, "prune_below": 0},
    "uses_history": False,
}


def main() -> None:
    """Print a table for each database."""
    parser = argparse.ArgumentParser(prog="python -m bench.service_load", description="Time a service under load.")
    parser.add_argument("--sweeps", type=int, action="append", help="stored sweeps, again for another number")
    parser.add_argument("--trials", type=int, default=200, help="trials of each")
    parser.add_argument("--requests", type=int, default=200, help="requests of each kind that are timed")
    parser.add_argument("--postgresql", action="store_true", help="PostgreSQL too, on a server of its own")

    given = parser.parse_args()
    databases = ([] if given.only_postgresql else [False]) + (
        [True] if given.postgresql or given.only_postgresql else []
    )
    for postgresql in databases:
        tables = [_measured(postgresql, size, given) for size in given.sweeps or (10, 1000)]
        _print("PostgreSQL" if postgresql else "SQLite", tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What one filled store showed.

    Attributes:
        waits_s: Of every request, by what it asked for.
    """

    num_sweeps: int
    num_trials: int
    waits_s: dict[str, list[float]] = field(default_factory=dict)


def _measured(postgresql: bool, num_sweeps: int, given: argparse.Namespace) -> _Load:
    load = _Load(num_sweeps=num_sweeps, num_trials=given.trials)
    with database(postgresql=postgresql) as url:
        started = time.monotonic()
        fill(url, num_sweeps=num_sweeps, num_trials=given.trials)
        _say(f"filled with {num_sweeps} sweeps in {time.monotonic() - started:.0f} s")
        with _service(url) as address:
            for name, path in _READS.items():
                load.waits_s[name] = _waits(address, _reading(path), given.requests)
            for name, body in _PREDICTIONS.items():
                _predictions(load, address, name, body, given.requests)
            _streams(load, address, url)
    return load


def _predictions(load: _Load, address: str, name: str, body: Any, num_requests: int) -> None:
    """One caller, then eight at once, while another asks again and again whether the service is alive."""

    def predict(http: httpx.Client) -> httpx.Response:
        return http.post("/api/v1/predictions", json=body)

    load.waits_s[f"{name}, 1 caller"] = _waits(address, predict, num_requests // 10)
    with _probed(address) as probes:
        load.waits_s[f"{name}, {_NUM_CALLERS} callers"] = _crowd(address, predict, num_requests // 20)
    load.waits_s[f"  /health meanwhile, {name.split()[-2]} GPUs"] = probes


# ---------------------------------------------------------------------- callers
_Ask = Callable[[httpx.Client], httpx.Response]


def _reading(path: str) -> _Ask:
    return lambda http: http.get(path)


def _waits(address: str, ask: _Ask, num_requests: int) -> list[float]:
    """Seconds of each request, one after the other; the first two are not counted, for they build what others use."""
    with httpx.Client(base_url=address, timeout=120) as http:
        return [_seconds(http, ask) for _ in range(num_requests + 2)][2:]


def _seconds(http: httpx.Client, ask: _Ask) -> float:
    started = time.perf_counter()
    ask(http).raise_for_status()
    return time.perf_counter() - started


def _crowd(address: str, ask: _Ask, num_requests: int) -> list[float]:
    with ThreadPoolExecutor(_NUM_CALLERS) as callers:
        found = [callers.submit(_waits, address, ask, num_requests) for _ in range(_NUM_CALLERS)]
        return [seconds for each in found for seconds in each.result()]


@contextmanager
def _probed(address: str) -> Iterator[list[float]]:
    """Seconds that ``/health``, which asks nothing of anything but the event loop, takes within the block."""
    waits: list[float] = []
    is_over = threading.Event()

    def probe() -> None:
        with httpx.Client(base_url=address, timeout=120) as http:
            _seconds(http, lambda http: http.get("/api/v1/health"))
            while not is_over.wait(0.02):
                waits.append(_seconds(http, lambda http: http.get("/api/v1/health")))

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()


# ---------------------------------------------------------------------- readers of events
def _streams(load: _Load, address: str, url: str) -> None:
    """What 200 readers wait for their first event, and for each that happens, while four sweeps run."""
    with ExitStack() as stack:
        http = stack.enter_context(httpx.Client(base_url=address, timeout=120))
        for _ in range(_NUM_SWEEPS_RUN):
            stack.enter_context(_process("worker", url))
        answers = [http.post("/api/v1/sweeps", json=_SWEEP | {"seed": seed}) for seed in range(_NUM_SWEEPS_RUN)]
        ids = [answer.raise_for_status().json()["id"] for answer in answers]
        probes = stack.enter_context(_probed(address))
        first, late = asyncio.run(_readers(address, ids))
    load.waits_s[f"first event of {_NUM_READERS} readers"] = first
    load.waits_s["from what happens to who reads it"] = late
    load.waits_s["  /health meanwhile"] = probes


async def _readers(address: str, ids: Sequence[str]) -> tuple[list[float], list[float]]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as http:
        readers = [_read(http, ids[number % len(ids)]) for number in range(_NUM_READERS)]
        found = await asyncio.gather(*readers)
    return [first for first, _ in found], [wait for _, waits in found for wait in waits]


async def _read(http: httpx.AsyncClient, sweep_id: str) -> tuple[float, list[float]]:
    """Seconds to the first event, and from each that happened since then to its arrival."""
    started, began, first, waits = time.perf_counter(), time.time(), 0.0, []
    async with http.stream("GET", f"/api/v1/sweeps/{sweep_id}/events") as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data:"):
                continue
            first = first or time.perf_counter() - started
            happened = json.loads(line.removeprefix("data:"))["at"]
            if happened > began + 2.0:
                waits.append(time.time() - happened)
    return first, waits


# ---------------------------------------------------------------------- processes
@contextmanager
def _service(url: str) -> Iterator[str]:
    """The address of a service of its own process."""
    with _process("serve", url, "--port", "0") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if '"service.listening"' in line:
                address = json.loads(line)["at"]
                break
        else:
            sys.exit("the service did not start")
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        yield address


@contextmanager
def _process(command: str, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    settings = {"AUTOTUNER_DATABASE_URL": url, "AUTOTUNER_NUM_WORKERS": "0", "AUTOTUNER_LOG_LEVEL": "info"}
    process = subprocess.Popen(
        [sys.executable, "-m", "autotuner.cli", command, *arguments],
        env=os.environ | settings,
        stderr=subprocess.PIPE if command == "serve" else subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


# ---------------------------------------------------------------------- what is printed
def _print(name: str, loads: Sequence[_Load]) -> None:
    first, last = loads[0], loads[-1]
    header = "".join(f"{f'{load.num_sweeps} sweeps':>22}" for load in loads)
    _say(f"\n{name}, {first.num_trials} trials each; ms{header}{'ratio of p50':>16}")
    _say(f"{'':44}" + "".join(f"{'p50':>14}{'p99':>8}" for _ in loads))
    for asked, waits in first.waits_s.items():
        cells = "".join(f"{_p(load.waits_s[asked], 0.5):14.1f}{_p(load.waits_s[asked], 0.99):8.1f}" for load in loads)
        _say(f"{asked:44}{cells}{_p(last.waits_s[asked], 0.5) / _p(waits, 0.5):16.2f}")


def _p(waits: Sequence[float], share: float) -> float:
    """That quantile in milliseconds."""
    ordered = sorted(waits)
    return 1e3 * (statistics.median(ordered) if share == 0.5 else ordered[round(share * (len(ordered) - 1))])


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what a bench is for


if __name__ == "__main__":
    main()
