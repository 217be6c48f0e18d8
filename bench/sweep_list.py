"""How fast the list of sweeps is answered: requests per second, and the median and slowest of them.

``python -m bench.sweep_list --sweeps 10 --sweeps 1000`` fills a SQLite file with sweeps of 50 trials each, serves it on
loopback, and asks for the first page of ``GET /api/v1/sweeps`` again and again, one request at a time. ``make bench``
does not run it: its answer holds for the machine and the hour.
"""

from __future__ import annotations

import argparse
import logging
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import structlog
import uvicorn

from api.main import create_app
from autotuner.bootstrap import App, build
from autotuner.catalog.load import load_cluster, load_model
from autotuner.domain.jobs.defaults import default_trial_space
from autotuner.domain.jobs.job import Job
from autotuner.domain.jobs.workload import Workload
from autotuner.domain.runs.sweep import StopReason, SweepRequest, SweepState
from autotuner.domain.runs.trial import TrialSpec
from autotuner.launch.fake import FakeLauncher, plain_measurement
from autotuner.settings import Settings
from autotuner.store.schema import migrate

_OWNER = "bench"
_NOW = 1_760_000_000.0


def main() -> None:
    """Print a line for each number of sweeps."""
    parser = argparse.ArgumentParser(prog="python -m bench.sweep_list", description="Time the list of sweeps.")
    parser.add_argument("--sweeps", type=int, action="append", help="sweeps in the store, again for another number")
    parser.add_argument("--trials", type=int, default=50, help="trials of each")
    parser.add_argument("--requests", type=int, default=100, help="requests that are timed")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for num_sweeps in options.sweeps or (10, 50, 1000):
        with tempfile.TemporaryDirectory() as folder, closing(_filled(Path(folder), num_sweeps, options.trials)) as app:
            _say(f"{num_sweeps} sweeps x {options.trials} trials: {_timed(app, options.requests)}")


def _filled(folder: Path, num_sweeps: int, num_trials: int) -> App:
    """An application whose store has so many finished sweeps: one that was written through it, and copies."""
    database = folder / "autotuner.db"
    migrate(f"sqlite:///{database}")
    app = build(Settings(database_url=f"sqlite:///{database}", num_workers=0), launcher=FakeLauncher())
    _copy(database, _sweep(app, num_trials), num_sweeps - 1)
    return app


def _sweep(app: App, num_trials: int) -> str:
    workload = Workload(seq_len=4096, global_batch_size=64)
    job = Job(model=load_model("llama-3-8b"), cluster=load_cluster("h100:8"), workload=workload)
    request = SweepRequest(job=job, space=default_trial_space(job))
    sweep, _ = app.store.create_sweep(request, now=_NOW)
    app.store.claim_sweep(owner=_OWNER, now=_NOW, lease_s=3600)
    for number, row in enumerate(app.predictions(job, request.space, limit=num_trials).rows):
        trial = app.store.add_trial(sweep.id, owner=_OWNER, number=number, layout=row.layout, prediction=row.prediction)
        app.store.start_trial(trial.id, owner=_OWNER, now=_NOW)
        spec = TrialSpec(trial_id=trial.id, model=job.model, workload=workload, layout=row.layout, device="cuda")
        outcome = plain_measurement(spec, step_time_s=row.prediction.step_time.total_s)
        app.store.finish_trial(trial.id, outcome, owner=_OWNER, now=_NOW + 30)
    state, reason = SweepState.COMPLETE, StopReason.TRIAL_BUDGET
    app.store.finish_sweep(sweep.id, owner=_OWNER, now=_NOW + 60, state=state, reason=reason, detail="all trials ran")
    return sweep.id


def _copy(database: Path, sweep_id: str, num_copies: int) -> None:
    """Write the rows of a sweep again under other ids, in one transaction: minutes less than through the store."""
    with closing(sqlite3.connect(database)) as connection, connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                if not any(isinstance(value, str) and sweep_id in value for value in row):
                    continue
                copies = (_renamed(row, sweep_id, f"sw-{number:010}") for number in range(num_copies))
                connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", copies)


def _renamed(row: tuple[object, ...], old: str, new: str) -> tuple[object, ...]:
    return tuple(value.replace(old, new) if isinstance(value, str) else value for value in row)


def _timed(app: App, num_requests: int) -> str:
    with _served(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        seconds = sorted(_seconds(client) for _ in range(num_requests + 1))[:-1]  # the first one builds the routes
    p99 = seconds[round(0.99 * (len(seconds) - 1))]
    rate = len(seconds) / sum(seconds)
    return f"{rate:.0f} requests/s, p50 {1e3 * statistics.median(seconds):.1f} ms, p99 {1e3 * p99:.1f} ms"


def _seconds(client: httpx.Client) -> float:
    started = time.perf_counter()
    client.get("/api/v1/sweeps").raise_for_status()
    return time.perf_counter() - started


@contextmanager
def _served(app: App) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app(app), log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what a bench is for


if __name__ == "__main__":
    main()
