"""Retunes that a real service runs by itself, and retunes and challenges whose services and workers are killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.codec import to_plain
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.runs.challenge import findings
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from tests.api.bodies import CPU
from tests.builders import cpu_layout
from tests.databases import postgres_database
from tests.patience import PATIENCE_S
from tests.system.service import Service, until
from tests.trainers.registered import LOOP
from tests.unit.runs.challenged import challenge, challenged

# ---------------------------------------------------------------- retune

PACED = f"""
[paced]
format = "arguments"
working_directory = "{LOOP.parent}"
command = ["{{python}}", "-S", "loop.py", "--ranks={{world_size}}", "--steps={{steps}}", "--spec={{spec}}"]
environment = ["TORCH_PACE_S"]
fixed = {{ precision = "fp32" }}
"""
"""Steps that sleep most of the time: a busy machine hardly changes what they take."""

BODY = {
    "name": "every-minute",
    "cron": "* * * * *",
    "sweep": {
        **CPU,
        "trial": {"measuring_budget_s": 0.5, "max_measured_steps": 8, "max_repeats": 0},
        "trainer": "paced",
    },
    "incumbent": to_plain(cpu_layout(data_parallel_replicate_degree=2, micro_batch_size=4)),
    "searches": False,
    "test": {"tolerance": 0.2, "loss": 0.4},
}


def ended(service: Service) -> list[dict[str, Any]]:
    """The runs that ended, the oldest first."""
    runs = service.get("/runs?kind=retune&subject=every-minute")["items"]
    return [run for run in reversed(runs) if run["result"]]


@pytest.mark.oracle  # it waits for the clock
def test_a_slowdown_is_found_by_the_clock_and_the_variable_that_brought_it_is_named(tmp_path: Path) -> None:
    trainers = tmp_path / "trainers.toml"
    trainers.write_text(PACED)
    service = Service(tmp_path)
    service.variables = {
        "AUTOTUNER_TRAINERS": str(trainers),
        "AUTOTUNER_ALSO_RECORDED": "TORCH_PACE_S",
        "TORCH_PACE_S": "0.1",
    }
    with service:
        service.post("/retunes", BODY)
        until("a run that the clock began", lambda: ended(service))
        service.kill()
    service.variables["TORCH_PACE_S"] = "0.2"
    with service:
        until("a run after the slowdown", lambda: ended(service)[1:])
        service.post("/retunes/every-minute/pause", None)
        first, later = ended(service)[:2]
    assert [run["request"]["trigger"] for run in (first, later)] == ["cron", "cron"]
    assert (first["result"]["verdict"], later["result"]["verdict"]) == ("unchanged", "regression")
    assert {"name": "TORCH_PACE_S", "then": "0.1", "now": "0.2"} in later["result"]["changes"]
    assert "TORCH_PACE_S was 0.1 and is 0.2" in later["detail"]


# ---------------------------------------------------------------- retune kills

NUM_KILLS = 6


def killed(url: str) -> str:
    """Return the account that the killed services leave; it ends with an error if it does not balance."""
    command = [sys.executable, "-m", "tests.chaos.retune_kills", url, "--kills", str(NUM_KILLS), "--retunes", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.oracle  # a quarter of a minute
def test_no_due_time_is_lost_or_run_twice_on_sqlite_when_services_are_killed(tmp_path: Path) -> None:
    assert f"survived {NUM_KILLS} of {NUM_KILLS}" in killed(f"sqlite:///{tmp_path}/store.db")


@pytest.mark.oracle  # a quarter of a minute
def test_no_due_time_is_lost_or_run_twice_on_postgresql_when_services_are_killed(postgres: str) -> None:
    with postgres_database(postgres) as url:
        assert f"survived {NUM_KILLS} of {NUM_KILLS}" in killed(url)


# ---------------------------------------------------------------- challenge kills


@contextmanager
def worker(url: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on the database; killed at the end of the block, whatever it is doing."""
    command = [sys.executable, "-m", "tests.system.challenge_worker", url, f"worker-{number}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=PATIENCE_S)


def trials(store: Store, sweep_id: str) -> list[Trial]:
    return list(store.list_trials(sweep_id)[0])


def runs_of(store: Store, sweep_id: str, number: int) -> Callable[[], bool]:
    return lambda: any(t.number == number and t.state is TrialState.RUNNING for t in trials(store, sweep_id))


def is_finished(store: Store, sweep_id: str) -> bool:
    return store.get_sweep(sweep_id).state.is_finished


def whole(url: str, request: SweepRequest) -> tuple[Store, str]:
    """The sweep by a worker that nobody disturbs, in a store without a history that would teach another."""
    migrate(url)
    store = open_store(url)
    sweep_id = store.create_sweep(request, now=time.time())[0].id
    with worker(url, -1):
        until("a sweep that nobody disturbs ends", lambda: is_finished(store, sweep_id))
    return store, sweep_id


@pytest.mark.oracle  # a worker starts for every run of the sweep
def test_a_challenged_sweep_whose_worker_is_killed_in_every_run_ends_as_one_that_nobody_disturbed(
    tmp_path: Path,
) -> None:
    request = challenged(challenge(baseline=()), budget=Budget(num_trials=2))
    expected = trials(*whole(f"sqlite:///{tmp_path}/undisturbed.db", request))
    url = f"sqlite:///{tmp_path}/disturbed.db"
    migrate(url)
    store = open_store(url)
    disturbed = store.create_sweep(request, now=time.time())[0].id
    for number in range(len(expected)):
        with worker(url, number):
            until(f"trial {number} runs", runs_of(store, disturbed, number))
    with worker(url, len(expected)):
        until("the disturbed sweep ends", lambda: is_finished(store, disturbed))

    found, ended = trials(store, disturbed), store.get_sweep(disturbed)
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.COMPARED)
    assert [(t.number, t.layout, t.repeats) for t in found] == [(t.number, t.layout, t.repeats) for t in expected]
    assert {(trial.state, trial.attempts) for trial in found} == {(TrialState.COMPLETE, 2)}
    assert findings(request, found).is_better
