"""How a service answers a team: lists, rankings, trials, pages, predictions and event streams, in one run.

``python -m bench.service_load`` fills SQLite files and PostgreSQL databases with 10 and with 1,000 sweeps of 200 trials
each, serves each from a process of its own on loopback, asks them in turn, and prints what callers of other processes
wait: p50 and p99, and what growing costs. Pages that show 50 sweeps are compared with 50 stored. At the end 200 readers
follow four sweeps that four workers run, on trials that nobody runs. ``/health`` is asked by another process meanwhile,
and the event loop's lag is what the service itself says of it (the bound of the bucket, so at most). Its answer holds
for the machine and the hour, so ``make bench`` does not run it. It ends by itself after eight minutes, with what it has
by then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import Any

import httpx

from bench.event_readers import read_events
from bench.filled_store import COPIED, FilledStore, database
from bench.probe import probed

_WORKLOAD = {"seq_len": 4096, "global_batch_size": 1024}

_FULL = 50
"""Sweeps on a page."""

_FULL_READS: Mapping[str, str] = {"list of sweeps, 50": "/api/v1/sweeps?limit=50", "page of sweeps, 50": "/"}

_READS: Mapping[str, str] = {
    "list of sweeps, 10": "/api/v1/sweeps?limit=10",
    "list of complete sweeps, 10": "/api/v1/sweeps?limit=10&state=complete",
    "sweep": f"/api/v1/sweeps/{COPIED}",
    "trials of a sweep, 50": f"/api/v1/sweeps/{COPIED}/trials",
    "ranking of a sweep, 50": f"/api/v1/sweeps/{COPIED}/ranking",
    "ranking of all, 50": "/api/v1/ranking",
    "trial": f"/api/v1/trials/{COPIED}-0007",
    "page of a sweep": f"/sweeps/{COPIED}",
    "page of a trial": f"/trials/{COPIED}-0007",
    "/ready": "/api/v1/ready",
    "/metrics": "/metrics",
}

_PREDICTIONS: Mapping[str, Any] = {
    f"prediction, {size} GPUs": {"model": "llama-3-70b", "cluster": f"h100:{size}", "workload": _WORKLOAD}
    for size in (64, 1024)
}

_NUM_CALLERS = 8
_NUM_READERS = 200
_NUM_SWEEPS_RUN = 4

_KIND_S = 2.0
"""Requests of one kind are asked for no longer than this."""

_STREAMS_S = 8.0
_LIMIT_S = 480
_NUM_STEPS = 4
_START_S = 60.0

_SWEEP = {
    "model": "llama-3-8b",
    "cluster": {"base": "h100:8", "name": "pretended", "engine": "simulated", "queue": "watched"},
    "workload": {"seq_len": 4096, "global_batch_size": 64},
    "budget": {"num_trials": 200, "min_gain": 0, "prune_below": 0},
    "loss_gate": {"enabled": False},
    "uses_history": False,
}


def main() -> None:
    """Print a table for each database."""
    parser = argparse.ArgumentParser(prog="python -m bench.service_load", description="Time a service under load.")
    parser.add_argument("--sweeps", type=int, action="append", help="stored sweeps, again for another number")
    parser.add_argument("--trials", type=int, default=200, help="trials of each")
    parser.add_argument("--requests", type=int, default=200, help="requests of each kind that are timed")
    parser.add_argument("--only", choices=("sqlite", "postgresql"), help="one of the databases")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"this took longer than {_LIMIT_S} s"))
    signal.alarm(_LIMIT_S)
    for name in ("sqlite", "postgresql"):
        if given.only in (None, name):
            _database(name, given)


def _database(name: str, given: argparse.Namespace) -> None:
    loads: list[_Load] = []
    sizes = sorted(set(given.sweeps or (10, 1000)))
    try:
        with ExitStack() as stack:
            _measure(stack, name == "postgresql", sizes, given, loads)
    finally:
        _print(name, given.trials, loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """What one filled store showed."""

    num_sweeps: int
    url: str
    address: str
    """Where it is served."""
    waits_s: dict[str, list[float]] = field(default_factory=dict)
    """Of every request, by what it asked for."""


def _measure(
    stack: ExitStack, postgresql: bool, sizes: Sequence[int], given: argparse.Namespace, loads: list[_Load]
) -> None:
    """Fill and serve a store of each size, and one that fills a page, and ask them in turn: what else runs hits all."""
    between = {_FULL} if sizes[0] < _FULL < sizes[-1] else set()
    for size in sorted({*sizes, *between}):
        started = time.monotonic()
        url = stack.enter_context(database(postgresql=postgresql))
        FilledStore(url, num_trials=given.trials, num_steps=_NUM_STEPS).hold(size)
        loads.append(_Load(num_sweeps=size, url=url, address=stack.enter_context(_service(url))))
        _say(f"holds {size} sweeps after {time.monotonic() - started:.0f} s")
    _reads([load for load in loads if load.num_sweeps >= _FULL], _FULL_READS, given.requests)
    compared = [load for load in loads if load.num_sweeps in sizes]
    with ExitStack() as watched:
        for load in compared:
            watched.enter_context(_lagging(load, "of these"))
        _reads(compared, _READS, given.requests)
    for name, body in _PREDICTIONS.items():
        _predictions(compared, name, body, given.requests)
    for load in compared:
        _streams(load)


def _reads(loads: Sequence[_Load], reads: Mapping[str, str], num_requests: int) -> None:
    for name, path in reads.items():
        _waits(loads, name, _reading(path), num_requests)
    _say(f"  {len(reads)} kinds of reads")


def _predictions(loads: Sequence[_Load], name: str, body: Any, num_requests: int) -> None:
    """One caller, then eight at once, while another asks again and again whether the service is alive."""

    def predict(http: httpx.Client) -> httpx.Response:
        return http.post("/api/v1/predictions", json=body)

    _waits(loads, f"{name}, 1 caller", predict, num_requests // 5)
    size = name.removeprefix("prediction, ")
    for load in loads:
        with _lagging(load, f"of 8 callers, {size}"), probed(load.address) as waits:
            _crowd(load, f"{name}, {_NUM_CALLERS} callers", predict, num_requests // 10)
        load.waits_s[f"  /health beside 8 callers, {size}"] = waits
    _say(f"  {name}")


# ---------------------------------------------------------------------- callers
_Ask = Callable[[httpx.Client], httpx.Response]


def _reading(path: str) -> _Ask:
    return lambda http: http.get(path)


def _waits(loads: Sequence[_Load], name: str, ask: _Ask, num_requests: int) -> None:
    """Seconds of each request, one after the other; the first two are not counted, for they build what others use."""
    with ExitStack() as stack:
        callers = [(stack.enter_context(httpx.Client(base_url=load.address, timeout=120)), load) for load in loads]
        for http, _ in callers * 2:
            _seconds(http, ask)
        until = time.monotonic() + _KIND_S * len(loads)
        for number in range(num_requests):
            if number and time.monotonic() > until:
                break
            for http, load in callers:
                load.waits_s.setdefault(name, []).append(_seconds(http, ask))


def _seconds(http: httpx.Client, ask: _Ask) -> float:
    started = time.perf_counter()
    answer = ask(http)
    took_s = time.perf_counter() - started
    if answer.status_code != httpx.codes.OK:
        sys.exit(f"{answer.request.url} answered {answer.status_code}: {answer.text[:300]}")
    return took_s


def _crowd(load: _Load, name: str, ask: _Ask, num_requests: int) -> None:
    """The same of several callers at once."""
    with ThreadPoolExecutor(_NUM_CALLERS) as callers:
        for each in [callers.submit(_waits, [load], name, ask, num_requests) for _ in range(_NUM_CALLERS)]:
            each.result()


# ---------------------------------------------------------------------- what the service says of its event loop
@contextmanager
def _lagging(load: _Load, when: str) -> Iterator[None]:
    """How late the event loop was within the block: the bound of the bucket of each time that it was looked at."""
    before = _lags(load.address)
    yield
    since = _lags(load.address) - before
    load.waits_s[f"  event loop's lag, {when}, at most"] = sorted(since.elements())


def _lags(address: str) -> Counter[float]:
    """How often the lag was within each bucket, by its upper bound."""
    told = httpx.get(f"{address}/metrics", timeout=60).raise_for_status().text
    found = re.findall(r'autotuner_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', told)
    lags, below = Counter[float](), 0
    for bound, count in found:
        lags[float(bound)] = int(float(count)) - below
        below = int(float(count))
    return lags


# ---------------------------------------------------------------------- readers of events
def _streams(load: _Load) -> None:
    """What 200 readers wait for their first event, and for each that happens, while four sweeps run."""
    with ExitStack() as stack:
        http = stack.enter_context(httpx.Client(base_url=load.address, timeout=60))
        answers = [http.post("/api/v1/sweeps", json=_SWEEP | {"seed": seed}) for seed in range(_NUM_SWEEPS_RUN)]
        ids = [answer.raise_for_status().json()["id"] for answer in answers]
        for _ in range(_NUM_SWEEPS_RUN):
            stack.enter_context(_process("worker", load.url))
        _wait_until_run(http, ids)
        stack.enter_context(_lagging(load, f"of {_NUM_READERS} readers"))
        with probed(load.address) as waits:
            found = asyncio.run(read_events(load.address, ids, num_readers=_NUM_READERS, seconds=_STREAMS_S))
        for sweep_id in ids:
            http.post(f"/api/v1/runs/{sweep_id}/cancel").raise_for_status()
    load.waits_s[f"first event of {_NUM_READERS} readers"] = found.first_s
    load.waits_s[f"event until each of {_NUM_READERS} has it"] = found.late_s
    load.waits_s[f"  /health beside {_NUM_READERS} readers"] = waits
    _say(
        f"  {len(found.first_s)} readers of {_NUM_SWEEPS_RUN} sweeps, {len(found.late_s)} events read as they happened"
    )


def _wait_until_run(http: httpx.Client, ids: Sequence[str]) -> None:
    until = time.monotonic() + _START_S
    while any(http.get(f"/api/v1/sweeps/{sweep_id}").json()["state"] == "queued" for sweep_id in ids):
        if time.monotonic() > until:
            sys.exit(f"the workers did not take {_NUM_SWEEPS_RUN} sweeps within {_START_S:.0f} s")
        time.sleep(0.2)


# ---------------------------------------------------------------------- processes
@contextmanager
def _service(url: str) -> Iterator[str]:
    """The address of a service of its own process."""
    with _process("serve", url, "--port", "0") as process:
        assert process.stderr is not None
        too_late = threading.Timer(_START_S, process.kill)
        too_late.start()
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if '"service.listening"' in line:
                break
        too_late.cancel()
        if not said or '"service.listening"' not in said[-1]:
            sys.exit(f"the service did not start: {''.join(said[-5:])}")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield json.loads(said[-1])["at"]


@contextmanager
def _process(command: str, url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of our commands, which is over behind the block."""
    settings = {
        "AUTOTUNER_DATABASE_URL": url,
        "AUTOTUNER_NUM_WORKERS": "0",
        "AUTOTUNER_KEEP_STEPS_DAYS": "0",
        "AUTOTUNER_MAX_STREAMS": str(2 * _NUM_READERS),
    }
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotuner.cli", command, *arguments],
            env=os.environ | settings,
            stderr=subprocess.PIPE if command == "serve" else said,
            text=True,
        )
        try:
            yield process
        except SystemExit:
            said.seek(0)
            _say(f"{command} said: {said.read()[-2000:]}")
            raise
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
            process.wait()


# ---------------------------------------------------------------------- what is printed
def _print(name: str, num_trials: int, loads: Sequence[_Load]) -> None:
    header = "".join(f"{f'{load.num_sweeps} sweeps':>20}" for load in loads)
    load_now = " ".join(f"{each:.1f}" for each in os.getloadavg())
    _say(f"\n{name}, {num_trials} trials each; ms; load of the machine {load_now} on {os.cpu_count()} cores")
    _say(f"{'':50}{header}")
    _say(f"{'':50}" + "".join(f"{'p50':>12}{'p99':>8}" for _ in loads) + f"{'ratio of p50':>16}")
    for asked in dict.fromkeys(asked for load in loads for asked in load.waits_s):
        all_waits = [load.waits_s.get(asked, []) for load in loads]
        _say(f"{asked:50}{''.join(map(_cell, all_waits))}{_ratio([waits for waits in all_waits if waits]):>16}")


def _cell(waits: Sequence[float]) -> str:
    return f"{_p(waits, 0.5):12.1f}{_p(waits, 0.99):8.1f}" if waits else " " * 20


def _ratio(found: Sequence[Sequence[float]]) -> str:
    return f"{_p(found[-1], 0.5) / _p(found[0], 0.5):.2f}" if len(found) > 1 else ""


def _p(waits: Sequence[float], share: float) -> float:
    """That quantile in milliseconds."""
    ordered = sorted(waits)
    return 1e3 * (statistics.median(ordered) if share == 0.5 else ordered[round(share * (len(ordered) - 1))])


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what a bench is for


if __name__ == "__main__":
    main()
