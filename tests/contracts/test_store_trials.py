"""Store contract: trials, their steps and their engine jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from autotuner.core import codec
from autotuner.core.choices import Recompute
from autotuner.core.errors import Conflict, LeaseLost, NotFound
from autotuner.core.sweep import ExpectedImprovement
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Outcome, Stopped, Trial, TrialState
from autotuner.store.engine import make_engine, reading
from autotuner.store.options import Page, TrialFilter
from autotuner.store.sql import Store
from autotuner.store.tables import events
from tests.builders import cpu_layout, failure, measurement, prediction, step_report, step_timeline
from tests.contracts.acts import (
    OTHER,
    add,
    begin,
    claim,
    create,
    end,
    finish,
    held_sweep,
    lease_of,
    measure,
    start,
    step,
    take_over,
)


# ---------------------------------------------------------------------- one trial
def test_an_added_trial_is_queued_and_reads_back_as_it_was_given(store: Store) -> None:
    sweep = held_sweep(store)
    layout = cpu_layout(tensor_parallel_degree=2, recompute=Recompute.FULL)
    guess = prediction(mfu=1 / 3, relative_error=0.1)
    trial = add(store, sweep, 3, layout=layout, prediction=guess)
    assert (trial.layout, trial.prediction) == (layout, guess)
    assert (trial.state, trial.number, trial.attempts) == (TrialState.QUEUED, 3, 0)
    assert store.get_trial(trial.id) == trial


def test_the_expectation_of_the_search_is_stored_with_the_trial_and_its_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    assert sweep.expected_improvement is None
    first, second = (ExpectedImprovement(num_candidates=12, num_fitting=9, expected_gain=gain) for gain in (None, 0.25))
    for number, expected in enumerate((first, second, None)):
        add(store, sweep, number, expected_improvement=expected)
    trials, _ = store.list_trials(sweep.id)
    assert [trial.expected_gain for trial in trials] == [None, 0.25, None]
    assert store.get_sweep(sweep.id).expected_improvement == second  # the last trial was not chosen by the search


def test_the_final_expectation_of_the_search_is_stored_with_the_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    left = ExpectedImprovement(num_candidates=12, num_fitting=9, expected_gain=0.004)
    ended = finish(store, sweep, expected_improvement=left)
    assert ended.expected_improvement == left
    assert store.get_sweep(sweep.id) == ended


def test_a_trial_id_says_its_sweep_and_number(store: Store) -> None:
    sweep = held_sweep(store)
    assert add(store, sweep, 7).id == f"{sweep.id}-0007"


def test_a_number_is_taken_once_per_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep, 1)
    with pytest.raises(Conflict, match="trial 1"):
        add(store, sweep, 1)
    assert store.get_trial(trial.id) == trial
    create(store)
    assert add(store, claim(store), 1).number == 1


def test_a_started_trial_runs_its_first_attempt(store: Store) -> None:
    trial = start(store, held_sweep(store))
    assert (trial.state, trial.attempts, trial.started_at) == (TrialState.RUNNING, 1, 11.0)
    assert store.get_trial(trial.id) == trial


def test_a_running_trial_cannot_start(store: Store) -> None:
    trial = start(store, held_sweep(store))
    with pytest.raises(Conflict, match="running"):
        begin(store, trial)
    assert store.get_trial(trial.id) == trial


def test_an_unknown_trial_is_not_found(store: Store) -> None:
    sweep = held_sweep(store)
    with pytest.raises(NotFound, match="0009"):
        store.get_trial(f"{sweep.id}-0009")


# ---------------------------------------------------------------------- steps
def test_steps_come_back_in_order(store: Store) -> None:
    trial = start(store, held_sweep(store))
    reports = tuple(step_report(number, loss=5.0 - number / 3, is_warmup=number < 2) for number in range(12))
    for report in (*reports[5:], *reports[:5]):
        store.add_step(trial.id, report, lease=lease_of(store, trial.id), now=12.0)
    assert store.get_trial(trial.id).steps == reports


def test_a_step_is_reported_once(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial, 0)
    with pytest.raises(Conflict, match="step 0"):
        step(store, trial, loss=1.0)
    assert store.get_trial(trial.id).steps == (step_report(0),)


def test_a_queued_trial_takes_no_step(store: Store) -> None:
    trial = add(store, held_sweep(store))
    with pytest.raises(Conflict, match="queued"):
        step(store, trial)


def test_a_loss_that_is_no_number_stays_none(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial, loss=math.nan)
    (report,) = store.get_trial(trial.id).steps
    assert math.isnan(report.loss)


# ---------------------------------------------------------------------- outcomes
@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (measurement(mfu=1 / 3), TrialState.COMPLETE),
        (failure(FailureKind.TIMEOUT, rank=None, log_tail="NUL \0, half a pair \ud800, µ"), TrialState.FAILED),
        (Stopped(reason="pruned"), TrialState.PRUNED),
        (Stopped(reason="cancelled"), TrialState.CANCELLED),
        (Stopped(reason="budget", detail="2 of 2 accelerator-hours are spent"), TrialState.CANCELLED),
    ],
    ids=lambda value: value.value if isinstance(value, TrialState) else "",
)
def test_a_trial_ends_as_its_outcome_says(store: Store, outcome: Outcome, state: TrialState) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial)
    ended = end(store, trial, outcome)
    assert (ended.state, ended.finished_at, ended.steps) == (state, 12.0, (step_report(),))
    assert ended.measurement == (outcome if state is TrialState.COMPLETE else None)
    assert ended.failure == (outcome if state is TrialState.FAILED else None)
    assert ended.stopped == (outcome if isinstance(outcome, Stopped) else None)
    assert store.get_trial(trial.id) == ended


@pytest.mark.parametrize(("reason", "attempts"), [("shutdown", 0), ("lease_lost", 1)])
def test_a_trial_stopped_for_its_workers_sake_is_queued_again_and_a_shutdown_does_not_count(
    store: Store, reason: str, attempts: int
) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial)
    stopped = end(store, trial, Stopped(reason="shutdown" if reason == "shutdown" else "lease_lost"))
    assert (stopped.state, stopped.attempts, stopped.steps) == (TrialState.QUEUED, attempts, ())
    assert (stopped.started_at, stopped.finished_at, stopped.stopped) == (None, None, None)
    assert store.get_trial(trial.id) == stopped
    again = begin(store, trial, now=20.0)
    assert (again.attempts, again.started_at) == (attempts + 1, 20.0)


def test_a_trial_ends_once(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.3)
    with pytest.raises(Conflict, match="complete"):
        end(store, trial, failure())
    assert store.get_trial(trial.id) == trial


# ---------------------------------------------------------------------- lists
def test_trials_are_listed_by_number_without_steps_a_page_at_a_time(store: Store) -> None:
    sweep = held_sweep(store)
    trials = [add(store, sweep, number) for number in (2, 0, 1)]
    running = begin(store, trials[0])
    step(store, running)
    assert store.list_trials(sweep.id) == ([trials[1], trials[2], running], 3)
    assert store.list_trials(sweep.id, page=Page(limit=1, offset=1)) == ([trials[2]], 3)


def test_listed_trials_carry_how_they_ended(store: Store) -> None:
    sweep = held_sweep(store)
    complete, failed = measure(store, sweep, 0, mfu=0.3), end(store, start(store, sweep, 1), failure())
    assert store.list_trials(sweep.id) == ([complete, failed], 2)


@pytest.mark.parametrize(
    "where",
    [
        TrialFilter(state=TrialState.RUNNING),
        TrialFilter(tensor_parallel_degree=2),
        TrialFilter(pipeline_parallel_degree=2),
        TrialFilter(micro_batch_size=4),
        TrialFilter(tensor_parallel_degree=2, pipeline_parallel_degree=2),
    ],
    ids=str,
)
def test_trials_are_listed_by_state_and_degree(store: Store, where: TrialFilter) -> None:
    sweep = held_sweep(store)
    add(store, sweep, 0)
    layout = cpu_layout(tensor_parallel_degree=2, pipeline_parallel_degree=2, micro_batch_size=4)
    wanted = start(store, sweep, 1, layout=layout)
    assert store.list_trials(sweep.id, where=where) == ([wanted], 1)


def test_trials_of_another_sweep_are_not_listed(store: Store) -> None:
    add(store, held_sweep(store))
    create(store)
    assert store.list_trials(claim(store).id) == ([], 0)


def test_a_trial_comes_back_with_the_timeline_of_a_step_and_lists_do_without(store: Store) -> None:
    sweep = held_sweep(store)
    trial = end(store, start(store, sweep), measurement(timeline=step_timeline()))
    assert store.get_trial(trial.id).measurement == measurement(timeline=step_timeline())
    (listed,), _ = store.list_trials(sweep.id)
    (ranked,), _ = store.ranking(sweep.id)
    assert listed.measurement == ranked.measurement == measurement()


# ---------------------------------------------------------------- steps
def report(store: Store, trial: Trial, *numbers: int) -> None:
    for number in numbers:
        store.add_step(trial.id, step_report(number, loss=5.0 - number / 7), lease=lease_of(store, trial.id), now=12.0)


def steps_told(store: Store, sweep_id: str) -> list[dict[str, object]]:
    return [event.data for event in store.events(sweep_id) if event.kind == "trial.step"]


def test_the_event_of_a_step_stores_its_number_and_readers_get_the_whole_report(
    store: Store, database_url: str
) -> None:
    trial = start(store, held_sweep(store))
    report(store, trial, 0, 1)
    engine = make_engine(database_url)
    of_steps = select(events.c.data).where(events.c.kind == "trial.step").order_by(events.c.sequence)
    with reading(engine) as connection:
        kept = connection.scalars(of_steps).all()
    engine.dispose()
    assert kept == [{"trial_id": trial.id, "number": 0, "step": step} for step in (0, 1)]
    for data, told in zip(kept, steps_told(store, trial.sweep_id), strict=True):
        assert told == {**data, **codec.to_plain(step_report(int(str(told["step"])), loss=told["loss"]))}


def test_steps_of_trials_that_run_side_by_side_are_reported_with_their_own_figures(store: Store) -> None:
    sweep = held_sweep(store)
    first, second = start(store, sweep, 0), start(store, sweep, 1)
    report(store, first, 0, 1)
    store.add_step(second.id, step_report(1, loss=2.5), lease=lease_of(store, second.id), now=12.0)
    told = {(data["number"], data["step"]): data["loss"] for data in steps_told(store, sweep.id)}
    assert told == {(0, 0): 5.0, (0, 1): 5.0 - 1 / 7, (1, 1): 2.5}


def test_an_attempt_that_does_not_count_leaves_neither_steps_nor_their_events(store: Store) -> None:
    sweep = held_sweep(store)
    other, trial = start(store, sweep, 0), start(store, sweep, 1)
    report(store, other, 0)
    report(store, trial, 0, 1)
    last_seen = store.events(sweep.id)[-1].sequence
    end(store, trial, Stopped(reason="shutdown"))
    assert [(data["number"], data["step"]) for data in steps_told(store, sweep.id)] == [(0, 0)]
    assert [event.kind for event in store.events(sweep.id, after=last_seen)] == ["trial.interrupted"]


def test_no_sequence_is_given_twice_where_an_attempt_was_forgotten(store: Store) -> None:
    sweep = held_sweep(store)
    report(store, start(store, sweep), 0, 1, 2)
    last_seen = store.events(sweep.id)[-1].sequence
    take_over(store)
    assert [event.kind for event in store.events(sweep.id, after=last_seen)] == ["trial.interrupted", "sweep.resumed"]


# ---------------------------------------------------------------- jobs
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


def test_a_job_is_reported_as_an_event(store: Store) -> None:
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


def test_accelerator_hours_of_a_lost_job_count_while_its_trial_waits_for_a_repeat(store: Store) -> None:
    sweep = held_sweep(store)
    trial = end(store, given(store, start(store, sweep), LOST), Stopped(reason="infrastructure"))
    assert trial.accelerator_hours(30.0) == pytest.approx(2.0 / 3600)
    assert store.overview(sweep.id, now=30.0).progress.accelerator_hours == pytest.approx(2.0 / 3600)
