"""Store contract: the jobs that engines were given for a trial."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.errors import Conflict, LeaseLost
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped, Trial, TrialState
from autotuner.store.sql import Store
from tests.builders import cpu_layout, step_report
from tests.contracts.acts import OTHER, end, held_sweep, lease_of, measure, start, take_over


def job(number: int = 0, **changes: Any) -> EngineJob:
    plain = EngineJob(engine="slurm", name=f"a-trial-0-{number}", handle=str(4711 + number), submitted_at=11.0)
    return replace(plain, **changes)


RUNNING = job(phase=EngineJobPhase.RUNNING, started_at=14.0)
ENDED = replace(RUNNING, phase=EngineJobPhase.ENDED, ended_at=16.0)
LOST = replace(ENDED, phase=EngineJobPhase.LOST, detail="node2 does not answer")


def given(store: Store, trial: Trial, *jobs: EngineJob) -> Trial:
    for one in jobs:
        trial = store.set_job(trial.id, one, lease=lease_of(store, trial.id), now=15.0)
    return trial


def interrupted(store: Store, trial: Trial) -> Trial:
    """The trial when another worker has taken its sweep over."""
    take_over(store)
    return store.get_trial(trial.id)


def test_a_job_reads_back_as_it_was_given_from_a_trial_and_from_a_list(store: Store) -> None:
    sweep = held_sweep(store)
    trial = given(store, start(store, sweep), replace(LOST, detail="NUL \0, half a pair \ud800, µ"))
    assert trial.jobs == (replace(LOST, detail="NUL \0, half a pair \ud800, µ"),)
    assert store.get_trial(trial.id) == trial
    assert store.list_trials(sweep.id) == ([trial], 1)


def test_a_job_that_stands_elsewhere_takes_the_place_of_what_was_known_of_it(store: Store) -> None:
    trial = given(store, start(store, held_sweep(store)), job(0), job(1), RUNNING)
    assert trial.jobs == (RUNNING, job(1))
    assert store.get_trial(trial.id) == trial


def test_a_job_is_told_as_an_event(store: Store) -> None:
    sweep = held_sweep(store)
    trial = given(store, start(store, sweep), RUNNING)
    told = store.events(sweep.id)[-1]
    assert (told.kind, told.at) == ("trial.job", 15.0)
    assert told.data == {
        "trial_id": trial.id,
        "number": 0,
        "engine": "slurm",
        "name": "a-trial-0-0",
        "handle": "4711",
        "submitted_at": 11.0,
        "phase": "running",
        "detail": "",
        "started_at": 14.0,
        "ended_at": None,
    }


def test_only_a_running_trial_takes_jobs(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.3)
    with pytest.raises(Conflict, match="complete"):
        given(store, trial, RUNNING)
    assert store.get_trial(trial.id) == trial


def test_a_worker_that_lost_its_lease_sets_no_job(store: Store) -> None:
    trial = interrupted(store, start(store, held_sweep(store)))
    with pytest.raises(LeaseLost):
        given(store, trial, RUNNING)
    assert store.get_trial(trial.id).jobs == ()


def test_a_trial_that_is_interrupted_keeps_its_jobs(store: Store) -> None:
    trial = given(store, start(store, held_sweep(store)), RUNNING)
    store.add_step(trial.id, step_report(), lease=lease_of(store, trial.id), now=15.0)
    found = interrupted(store, trial)
    assert (found.state, found.steps, found.jobs) == (TrialState.QUEUED, (), (RUNNING,))


def test_a_trial_that_lost_its_nodes_is_queued_again_with_its_jobs_and_the_attempt_counts(store: Store) -> None:
    trial = given(store, start(store, held_sweep(store)), LOST)
    lost = end(store, trial, Stopped(reason="infrastructure", detail="node2 does not answer"))
    assert (lost.state, lost.attempts, lost.jobs, lost.stopped) == (TrialState.QUEUED, 1, (LOST,), None)
    assert store.get_trial(trial.id) == lost
    assert store.start_trial(trial.id, lease=lease_of(store, trial.id), now=20.0).attempts == 2


@pytest.mark.parametrize("known", [job(), RUNNING], ids=["waits", "runs"])
def test_a_job_that_is_found_again_is_no_new_attempt(store: Store, known: EngineJob) -> None:
    trial = given(store, start(store, held_sweep(store)), known)
    interrupted(store, trial)
    assert store.start_trial(trial.id, lease=lease_of(store, trial.id, OTHER), now=101.0).attempts == 1


def test_a_job_that_a_shutdown_leaves_alone_is_still_its_first_attempt(store: Store) -> None:
    trial = given(store, start(store, held_sweep(store)), RUNNING)
    assert end(store, trial, Stopped(reason="shutdown")).attempts == 1
    assert store.start_trial(trial.id, lease=lease_of(store, trial.id), now=20.0).attempts == 1


WAITS, RUNS = job(1, submitted_at=16.0), job(1, submitted_at=16.0, started_at=17.5, phase=EngineJobPhase.RUNNING)
HOURS = [
    ((job(),), 0.0),
    ((RUNNING,), 30.0 - 14.0),
    ((ENDED,), 2.0),
    ((LOST, WAITS), 2.0),
    ((LOST, RUNS), 2.0 + 30.0 - 17.5),
    ((job(phase=EngineJobPhase.LOST, ended_at=13.0),), 0.0),
]


@pytest.mark.parametrize(("jobs", "seconds"), HOURS, ids=["waits", "runs", "ended", "again", "two", "never-came"])
def test_accelerators_cost_from_when_each_job_has_them_in_a_trial_as_in_an_overview(
    store: Store, jobs: tuple[EngineJob, ...], seconds: float
) -> None:
    sweep = held_sweep(store)
    trial = given(store, start(store, sweep, layout=cpu_layout(tensor_parallel_degree=2)), *jobs)
    assert trial.accelerator_hours(30.0) == pytest.approx(2 * seconds / 3600, rel=1e-12, abs=1e-12)
    assert store.overview(sweep.id, now=30.0).progress.accelerator_hours == pytest.approx(trial.accelerator_hours(30.0))


def test_a_trial_that_has_ended_costs_no_more_whatever_was_seen_last_of_its_job(store: Store) -> None:
    sweep = held_sweep(store)
    trial = given(store, start(store, sweep), job(phase=EngineJobPhase.RUNNING, started_at=11.5))
    ended = end(store, trial, Stopped(reason="cancelled"))
    for now in (12.0, 100.0):
        assert ended.accelerator_hours(now) == pytest.approx(0.5 / 3600)
        assert store.overview(sweep.id, now=now).progress.accelerator_hours == pytest.approx(0.5 / 3600)


def test_what_a_lost_job_cost_counts_while_its_trial_waits_to_run_again(store: Store) -> None:
    sweep = held_sweep(store)
    trial = end(store, given(store, start(store, sweep), LOST), Stopped(reason="infrastructure"))
    assert trial.accelerator_hours(30.0) == pytest.approx(2.0 / 3600)
    assert store.overview(sweep.id, now=30.0).progress.accelerator_hours == pytest.approx(2.0 / 3600)
