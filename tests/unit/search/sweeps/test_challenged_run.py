"""Challenged sweeps through a worker, a store and a launcher that only pretends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, SweepRequest
from autotuner.core.trial import Stopped, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.runs.clock import SystemClock
from autotuner.search.sweeps.challenge import findings
from autotuner.store.sql import Store, memory_store
from tests.builders import engine_job
from tests.fake_launcher import FakeLauncher, sweep_worker
from tests.unit.search.sweeps.challenged import TEST, a_fifth_slower_incumbent, challenge, challenged

BASELINE_FREE = challenge(baseline=())

IN_EACH_PHASE = (1, 3, 6)
"""Numbers of trials: an incumbent's repeat, one of the search, one by turns."""


def worked(store: Store, launcher: FakeLauncher, shutdown: threading.Event | None = None, owner: str = "one") -> None:
    sweep_worker(store, launcher, SystemClock(), owner=owner, lease_s=15.0, shutdown=shutdown).run_once()


def stored(request: SweepRequest) -> tuple[Store, str]:
    store = memory_store()
    return store, store.create_sweep(request, now=0.0)[0].id


def test_repeats_are_stored_without_a_rank_and_no_budget_counts_them() -> None:
    request = challenged(BASELINE_FREE)
    store, sweep_id = stored(request)
    worked(store, FakeLauncher(a_fifth_slower_incumbent))
    ended, trials = store.get_sweep(sweep_id), store.list_trials(sweep_id)[0]
    repeats = [trial for trial in trials if trial.repeats is not None]
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.COMPARED)
    assert len(trials) - len(repeats) == request.budget.num_trials
    assert {trial.number for trial in store.ranking(sweep_id)[0]}.isdisjoint(trial.number for trial in repeats)
    assert store.overview(sweep_id, now=0.0).num_repeats == len(repeats)
    assert findings(request, trials).is_better


def test_trials_of_a_challenge_run_once_each_and_an_incumbent_the_fewest_times() -> None:
    store, _ = stored(challenged(BASELINE_FREE))
    launcher = FakeLauncher(a_fifth_slower_incumbent)
    worked(store, launcher)
    assert {spec.settings.num_runs for spec in launcher.specs} == {1}
    store, sweep_id = stored(challenged(challenge(baseline=(), searches=False)))
    worked(store, FakeLauncher())
    assert store.list_trials(sweep_id)[1] == TEST.min_runs


def test_a_worker_that_shuts_down_in_any_phase_leaves_the_rest_to_the_next() -> None:
    request = challenged(BASELINE_FREE, budget=Budget(num_trials=2))
    store, sweep_id = stored(request)
    worked(store, FakeLauncher(a_fifth_slower_incumbent))
    whole = [(trial.layout, trial.repeats) for trial in store.list_trials(sweep_id)[0]]
    for num in IN_EACH_PHASE:
        store, sweep_id = stored(request)
        shutdown = threading.Event()
        worked(store, FakeLauncher(_ending(shutdown, after=num)), shutdown)
        assert store.get_sweep(sweep_id).state is RunState.RUNNING
        worked(store, FakeLauncher(a_fifth_slower_incumbent), owner="two")
        trials = store.list_trials(sweep_id)[0]
        assert [(trial.layout, trial.repeats) for trial in trials] == whole
        assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def _ending(shutdown: threading.Event, *, after: int) -> Callable[[TrialSpec], Measurement]:
    """A launcher's behaviour in which the worker is told to stop while that trial runs."""

    def run(spec: TrialSpec) -> Measurement:
        if spec.trial_id.endswith(f"-{after:04d}"):
            shutdown.set()
        return a_fifth_slower_incumbent(spec)

    return run


@pytest.mark.parametrize("number", [1, 6])  # of the incumbent, and of the challenger
def test_the_job_of_a_repeat_that_goes_on_is_found_again_by_the_next_worker(number: int) -> None:
    shutdown = threading.Event()
    store, sweep_id = stored(challenged(BASELINE_FREE))
    job = engine_job(f"repeat-{number}")

    class Leaving(FakeLauncher):
        """Is told of a shutdown while the repeat's job waits, which it leaves alone."""

        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            if spec.trial_id.endswith(f"-{number:04d}"):
                watcher.on_job(job)
                shutdown.set()
            return watcher.stop_requested() or super().run(spec, watcher)

    worked(store, Leaving(a_fifth_slower_incumbent), shutdown)
    next_one = FakeLauncher(a_fifth_slower_incumbent)
    worked(store, next_one, owner="two")
    found = store.list_trials(sweep_id)[0][number]
    assert next_one.specs[0].jobs == (job,)
    assert found.repeats is not None
    assert (found.state, found.attempts) == (TrialState.COMPLETE, 1)
