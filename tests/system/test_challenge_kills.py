"""A worker killed in every run of a challenged sweep: each is run again, none is lost, and none is counted twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.search.sweeps.challenge import findings
from autotuner.store.schema import migrate
from autotuner.store.sql import Store, open_store
from tests.system.service import until
from tests.unit.search.sweeps.challenged import challenge, challenged


@contextmanager
def worker(url: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on the database; killed at the end of the block, whatever it is doing."""
    command = [sys.executable, "-m", "tests.system.challenge_worker", url, f"worker-{number}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


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
