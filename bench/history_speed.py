"""How much longer ``POST /predictions`` takes where a thousand stored trials teach it.

``python -m bench.history_speed`` fills a SQLite file with trials of 24 sweeps and asks for the best layouts of a job on
256 H100 in turn with ``uses_history`` and without: again and again while nothing ends, and once after each of some
trials that end meanwhile. ``make bench`` does not run it: its answer holds for the machine and the hour.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from fastapi.testclient import TestClient

from api.main import create_app
from autotuner.catalog.hardware import load_cluster
from autotuner.catalog.models import load_model
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.run import Finish, Lease, RunState, StopReason
from autotuner.core.space import default_trial_space
from autotuner.core.sweep import Sweep, SweepRequest, SweepResult
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.search.space.legal import legal_layouts
from autotuner.search.sweeps.instructions import RunTrial
from autotuner.service.build import App, build
from autotuner.service.settings import Settings
from autotuner.store.schema import migrate
from bench.fake_launcher import FakeLauncher, plain_measurement

_OWNER = "bench"
_SCATTER = 0.05
"""Standard deviation of a trial's step time around 1.1 times the predicted one, in logarithms."""

_ASKED: dict[str, Any] = {
    "model": "llama-3-70b",
    "cluster": "h100:256",
    "workload": {"seq_len": 8192, "global_batch_size": 1024},
}


def main() -> None:
    """Print the median times and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.history_speed", description="Time predictions that learn.")
    parser.add_argument("--trials", type=int, default=42, help="trials of each of 24 sweeps")
    parser.add_argument("--requests", type=int, default=20, help="requests of each kind that are timed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, closing(_app(Path(folder))) as app:
        team = _Team(app)
        for job in _jobs():
            team.finish(team.sweep(job, options.trials))
        with TestClient(create_app(app)) as client:
            _print(client, team, options.requests)


def _print(client: TestClient, team: _Team, num_requests: int) -> None:
    for history in (False, True):
        _seconds(client, uses_history=history)
    pairs = [_pair(client) for _ in range(num_requests)]
    _say(f"while nothing ends: {_in_words(pairs)}")
    sweep, pairs = team.begun(next(iter(_jobs())), num_requests), []
    for number in range(num_requests):
        team.end(sweep, number)
        pairs.append(_pair(client))
    _say(f"after each trial that ended: {_in_words(pairs)}")


def _pair(client: TestClient) -> tuple[float, float]:
    """Seconds with history, which whatever ended just now is new to, and without."""
    return _seconds(client, uses_history=True), _seconds(client, uses_history=False)


def _seconds(client: TestClient, *, uses_history: bool) -> float:
    begin_s = time.perf_counter()
    answer = client.post("/api/v1/predictions", json={**_ASKED, "uses_history": uses_history})
    answer.raise_for_status()
    return time.perf_counter() - begin_s


def _in_words(pairs: list[tuple[float, float]]) -> str:
    after, before = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    return f"{1e3 * before:.0f} ms without history, {1e3 * after:.0f} ms with it, {ratio:.2f} times as long"


class _Team:
    """Sweeps whose trials take about 1.1 times as long as predicted; a second passes between two events."""

    def __init__(self, app: App) -> None:
        self._store = app.store
        self._seconds = itertools.count(1_760_000_000)
        self._random = np.random.default_rng(0)
        self._layouts: dict[str, list[Layout]] = {}

    def sweep(self, job: Job, num_trials: int) -> Sweep:
        """A sweep of which so many trials have ended."""
        sweep = self.begun(job, num_trials)
        for number in range(num_trials):
            self.end(sweep, number)
        return sweep

    def begun(self, job: Job, num_trials: int) -> Sweep:
        """A sweep whose trials are known and have not run."""
        sweep, _ = self._store.create_sweep(SweepRequest(job=job, space=default_trial_space(job)), now=self._now())
        self._store.runs.claim(["sweep"], owner=_OWNER, now=self._now(), lease_s=1e9)
        legal = legal_layouts(job, sweep.request.space)
        rows = np.sort(self._random.choice(len(legal), num_trials, replace=False))
        self._layouts[sweep.id] = [legal.row(int(row)) for row in rows]
        return sweep

    def end(self, sweep: Sweep, number: int) -> None:
        """One of its trials is measured."""
        job, layout = sweep.request.job, self._layouts[sweep.id][number]
        predicted = predict_one(layout, job)
        lease = self._lease(sweep)
        trial = self._store.add_trial(RunTrial(number=number, layout=layout, prediction=predicted), lease=lease)
        self._store.start_trial(trial.id, lease=lease, now=self._now())
        spec = TrialSpec(trial_id=trial.id, model=job.model, workload=job.workload, layout=layout, device="cuda")
        took_s = 1.1 * predicted.step_time.total_s * float(np.exp(self._random.normal(0.0, _SCATTER)))
        self._store.finish_trial(trial.id, plain_measurement(spec, step_time_s=took_s), lease=lease, now=self._now())

    def finish(self, sweep: Sweep) -> None:
        """Its budget is spent."""
        result = SweepResult(reason=StopReason.TRIAL_BUDGET)
        end = Finish(state=RunState.COMPLETE, detail="all ran", result=result)
        self._store.runs.finish(self._lease(sweep), end, now=self._now())

    def _lease(self, sweep: Sweep) -> Lease:
        lease = self._store.get_sweep(sweep.id).lease
        assert lease is not None, "it was claimed"
        return lease

    def _now(self) -> float:
        return float(next(self._seconds))


def _jobs() -> Iterator[Job]:
    for name, num_nodes, batch in itertools.product(
        ("llama-3-8b", "llama-3-70b", "qwen3-8b", "mixtral-8x7b"), (2, 4, 8), (256, 512)
    ):
        workload = Workload(seq_len=8192, global_batch_size=batch)
        yield Job(model=load_model(name), cluster=load_cluster(f"h100:{num_nodes}x8"), workload=workload)


def _app(folder: Path) -> App:
    url = f"sqlite:///{folder}/autotuner.db"
    migrate(url)
    return build(Settings(database_url=url, num_workers=0, log_level="error"), launcher=FakeLauncher())


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # what a bench is for


if __name__ == "__main__":
    main()
