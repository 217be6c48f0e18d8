"""Store contract: trials, their steps and outcomes."""

from __future__ import annotations

import math

import pytest

from autotuner.core.choices import Recompute
from autotuner.core.errors import Conflict, NotFound
from autotuner.core.sweep import Prospects
from autotuner.core.trial import FailureKind, Outcome, Stopped, TrialState
from autotuner.store.options import Page, TrialFilter
from autotuner.store.sql import Store
from tests.builders import cpu_layout, failure, measurement, prediction, step_report, step_timeline
from tests.contracts.acts import add, begin, claim, create, end, finish, held_sweep, lease_of, measure, start, step


# ---------------------------------------------------------------------- one trial
def test_an_added_trial_is_queued_and_reads_back_as_it_was_given(store: Store) -> None:
    sweep = held_sweep(store)
    layout = cpu_layout(tensor_parallel_degree=2, recompute=Recompute.FULL)
    guess = prediction(mfu=1 / 3, relative_error=0.1)
    trial = add(store, sweep, 3, layout=layout, prediction=guess)
    assert (trial.layout, trial.prediction) == (layout, guess)
    assert (trial.state, trial.number, trial.attempts) == (TrialState.QUEUED, 3, 0)
    assert store.get_trial(trial.id) == trial


def test_what_the_search_expected_is_kept_with_the_trial_and_with_its_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    assert sweep.prospects is None
    first, second = (Prospects(num_candidates=12, num_fitting=9, expected_gain=gain) for gain in (None, 0.25))
    for number, expected in enumerate((first, second, None)):
        add(store, sweep, number, prospects=expected)
    trials, _ = store.list_trials(sweep.id)
    assert [trial.expected_gain for trial in trials] == [None, 0.25, None]
    assert store.get_sweep(sweep.id).prospects == second  # the last trial was not chosen by the search


def test_what_the_search_expects_at_the_end_is_kept_with_the_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    left = Prospects(num_candidates=12, num_fitting=9, expected_gain=0.004)
    ended = finish(store, sweep, prospects=left)
    assert ended.prospects == left
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
