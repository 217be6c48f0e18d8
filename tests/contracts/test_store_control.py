"""Store contract: sweeps that are paused, get another budget, or run a trial again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autotuner.core.access import Caller, Quota, Scope
from autotuner.core.comparison import Challenge
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, QuotaExceeded
from autotuner.core.run import RunState, Stop, StopReason
from autotuner.core.sweep import Budget, Rerun, Sweep
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, TrialFailure, TrialState
from autotuner.store.sql import Store
from tests.builders import cpu_layout, measurement, sweep_request
from tests.contracts.acts import (
    LEASE_S,
    OTHER,
    OWNER,
    add,
    begin,
    claim,
    claim_sweep,
    create,
    end,
    finish,
    held_sweep,
    lease_of,
    measure,
    release_sweep,
    renew_lease,
    start,
    step,
    take_over,
)


def kinds(store: Store, sweep: Sweep) -> list[str]:
    return [event.kind for event in store.events(sweep.id)]


# ---------------------------------------------------------------------- pauses
def test_a_queued_sweep_pauses_at_once_and_nobody_can_claim_it(store: Store) -> None:
    sweep = create(store)
    assert store.runs.pause("sweep", sweep.id, now=2.0).state is RunState.PAUSED
    assert claim_sweep(store, owner=OWNER, now=3.0, lease_s=LEASE_S) is None
    assert kinds(store, sweep) == ["sweep.created", "sweep.paused"]


def test_a_held_sweep_is_paused_when_its_worker_gives_it_back(store: Store) -> None:
    sweep = held_sweep(store)
    asked = store.runs.pause("sweep", sweep.id, now=12.0)
    assert (asked.state, asked.wanted) == (RunState.RUNNING, Stop.PAUSE)
    assert renew_lease(store, sweep.id, owner=OWNER, now=13.0).wanted is Stop.PAUSE
    release_sweep(store, sweep.id, owner=OWNER, now=14.0)
    paused = store.get_sweep(sweep.id)
    assert (paused.state, paused.owner, paused.pause_requested) == (RunState.PAUSED, None, False)
    assert claim_sweep(store, owner=OTHER, now=1e6, lease_s=LEASE_S) is None
    assert kinds(store, sweep)[-1] == "sweep.paused"


def test_a_paused_trial_is_queued_again_as_if_its_attempt_had_not_begun(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial)
    given_back = end(store, trial, Stopped(reason="paused", detail="paused by request"))
    assert (given_back.state, given_back.attempts, given_back.started_at) == (TrialState.QUEUED, 0, None)
    assert store.get_trial(trial.id).steps == ()


def test_a_resumed_sweep_goes_on_under_its_old_place_and_its_pause_counts_for_no_time(store: Store) -> None:
    sweep = held_sweep(store)
    store.runs.pause("sweep", sweep.id, now=12.0)
    release_sweep(store, sweep.id, owner=OWNER, now=20.0)
    create(store, now=2.0)
    assert store.runs.resume("sweep", sweep.id, now=100.0).state is RunState.QUEUED
    again = claim(store, owner=OTHER, now=110.0)
    assert (again.id, again.started_at, again.interventions.idle_s) == (sweep.id, 10.0, 90.0)
    assert store.overview(sweep.id, now=115.0).progress.elapsed_s == 15.0
    assert kinds(store, sweep)[-2:] == ["sweep.queued", "sweep.resumed"]


def test_time_stands_still_in_the_overview_of_a_paused_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    store.runs.pause("sweep", sweep.id, now=12.0)
    release_sweep(store, sweep.id, owner=OWNER, now=20.0)
    assert store.overview(sweep.id, now=500.0).progress.elapsed_s == 10.0


def test_asking_again_for_a_pause_or_its_end_changes_nothing(store: Store) -> None:
    sweep = create(store)
    paused = store.runs.pause("sweep", sweep.id, now=2.0)
    assert store.runs.pause("sweep", sweep.id, now=3.0) == paused
    queued = store.runs.resume("sweep", sweep.id, now=4.0)
    assert store.runs.resume("sweep", sweep.id, now=5.0) == queued
    assert kinds(store, sweep) == ["sweep.created", "sweep.paused", "sweep.queued"]


def test_resuming_before_the_worker_has_paused_takes_the_request_back(store: Store) -> None:
    sweep = held_sweep(store)
    store.runs.pause("sweep", sweep.id, now=12.0)
    assert store.runs.resume("sweep", sweep.id, now=13.0).wanted is None
    release_sweep(store, sweep.id, owner=OWNER, now=14.0)
    assert claim(store, owner=OTHER, now=15.0).id == sweep.id


def test_a_sweep_with_jobs_that_go_on_is_paused_by_the_next_worker_which_ends_them(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    job = EngineJob(
        name=trial.id, engine="slurm", handle="7", phase=EngineJobPhase.RUNNING, submitted_at=11.0, started_at=11.0
    )
    store.set_job(trial.id, job, lease=lease_of(store, trial.id), now=12.0)
    end(store, store.get_trial(trial.id), Stopped(reason="shutdown"))
    release_sweep(store, sweep.id, owner=OWNER, now=13.0)
    assert store.runs.pause("sweep", sweep.id, now=14.0).state is RunState.RUNNING
    claim(store, owner=OTHER, now=15.0)
    found = begin(store, trial, owner=OTHER, now=16.0)
    ended = store.finish_trial(found.id, Stopped(reason="paused"), lease=lease_of(store, found.id, OTHER), now=17.0)
    assert not ended.job_goes_on
    release_sweep(store, sweep.id, owner=OTHER, now=18.0)
    assert store.get_sweep(sweep.id).state is RunState.PAUSED


def test_a_paused_sweep_is_cancelled_at_once(store: Store) -> None:
    sweep = held_sweep(store)
    add(store, sweep)
    store.runs.pause("sweep", sweep.id, now=12.0)
    release_sweep(store, sweep.id, owner=OWNER, now=14.0)
    cancelled = store.request_cancel(sweep.id, now=15.0)
    assert (cancelled.state, cancelled.finished_at) == (RunState.CANCELLED, 15.0)


def test_a_cancel_goes_before_a_pause(store: Store) -> None:
    sweep = held_sweep(store)
    store.runs.pause("sweep", sweep.id, now=12.0)
    store.request_cancel(sweep.id, now=13.0)
    release_sweep(store, sweep.id, owner=OWNER, now=14.0)
    assert store.get_sweep(sweep.id).state is RunState.RUNNING


def test_a_sweep_that_is_being_cancelled_is_not_paused(store: Store) -> None:
    sweep = held_sweep(store)
    store.request_cancel(sweep.id, now=13.0)
    with pytest.raises(Conflict, match="being cancelled"):
        store.runs.pause("sweep", sweep.id, now=15.0)


def test_a_finished_sweep_is_neither_paused_nor_resumed(store: Store) -> None:
    sweep = held_sweep(store)
    finish(store, sweep)
    with pytest.raises(Conflict, match="already complete"):
        store.runs.pause("sweep", sweep.id, now=30.0)
    with pytest.raises(Conflict, match="extend its budget"):
        store.runs.resume("sweep", sweep.id, now=30.0)


# ---------------------------------------------------------------------- budgets
def test_a_changed_budget_is_the_sweeps_and_its_key_matches_what_was_asked_first(store: Store) -> None:
    sweep, _ = store.create_sweep(sweep_request(), now=1.0, idempotency_key="key")
    changed = store.control.change_budget(sweep.id, {"num_trials": 9, "patience": 3}, now=2.0)
    assert changed.request.budget == replace(sweep.request.budget, num_trials=9, patience=3)
    assert store.get_sweep(sweep.id) == changed
    assert store.overview(sweep.id, now=3.0).budget.num_trials == 9
    assert store.create_sweep(sweep_request(), now=4.0, idempotency_key="key") == (changed, False)
    with pytest.raises(Conflict):
        store.create_sweep(changed.request, now=5.0, idempotency_key="key")


def test_a_worker_reads_the_new_budget_and_cannot_end_the_sweep_by_the_old_one(store: Store) -> None:
    sweep = held_sweep(store)
    store.control.change_budget(sweep.id, {"num_trials": 9}, now=12.0)
    held = finish(store, sweep, seen=0)
    assert (held.state, held.request.budget.num_trials) == (RunState.RUNNING, 9)
    assert renew_lease(store, sweep.id, owner=OWNER, now=13.0).num_changes == 1
    assert finish(store, sweep, seen=1).state is RunState.COMPLETE


def test_a_finished_sweep_with_a_larger_budget_is_queued_with_what_its_end_cut_short(store: Store) -> None:
    sweep = held_sweep(store)
    done = measure(store, sweep, 0, mfu=0.4)
    cut = start(store, sweep, 1)
    finish(store, sweep)
    reopened = store.control.change_budget(sweep.id, {"num_trials": 8}, now=50.0)
    assert (reopened.state, reopened.finished_at, reopened.stop_reason) == (RunState.QUEUED, None, None)
    assert reopened.interventions.num_reopened == 1
    assert store.get_trial(done.id) == done
    waiting = store.get_trial(cut.id)
    assert (waiting.state, waiting.attempts, waiting.stopped) == (TrialState.QUEUED, 0, None)
    assert claim(store, owner=OTHER, now=60.0).interventions.idle_s == 40.0
    assert kinds(store, sweep)[-4:] == ["trial.interrupted", "sweep.changed", "sweep.queued", "sweep.resumed"]


def test_a_sweep_that_ends_twice_is_announced_twice(store: Store) -> None:
    sweep = held_sweep(store)
    measure(store, sweep, 0, mfu=0.4)
    finish(store, sweep)
    store.control.change_budget(sweep.id, {"num_trials": 8}, now=50.0)
    claim(store, now=60.0)
    finish(store, sweep, now=70.0)
    ids = [announcement.id for announcement in store.announcements.feed()[0]]
    assert ids == [f"an-{sweep.id}-2", f"an-{sweep.id}"]


@pytest.mark.parametrize(
    ("budget", "reason", "limits", "field", "nearest"),
    [
        (Budget(num_trials=1), StopReason.TRIAL_BUDGET, {"patience": 3}, "budget.num_trials", 2),
        (Budget(wall_clock_s=10.0), StopReason.TIME_BUDGET, {"wall_clock_s": 8.0}, "budget.wall_clock_s", 11),
        (Budget(patience=2), StopReason.NO_IMPROVEMENT, {"num_trials": 30}, "budget.patience", 3),
        (Budget(min_gain=0.01), StopReason.NOTHING_TO_GAIN, {"num_trials": 30}, "budget.min_gain", None),
    ],
)
def test_a_budget_by_which_a_finished_sweep_would_end_at_once_is_refused(
    store: Store, budget: Budget, reason: StopReason, limits: dict[str, object], field: str, nearest: float | None
) -> None:
    sweep = held_sweep(store, budget=budget)
    measure(store, sweep, 0, mfu=0.4)
    finish(store, sweep, reason=reason)
    with pytest.raises(InvalidInput) as refused:
        store.control.change_budget(sweep.id, limits, now=30.0)
    assert (refused.value.field, refused.value.nearest) == (field, nearest)
    assert store.get_sweep(sweep.id).state is RunState.COMPLETE


def test_no_budget_reopens_a_sweep_that_tried_everything(store: Store) -> None:
    sweep = held_sweep(store)
    finish(store, sweep, reason=StopReason.SPACE_EXHAUSTED)
    with pytest.raises(Conflict, match="clone the sweep with a wider space"):
        store.control.change_budget(sweep.id, {"num_trials": 30}, now=30.0)


# ---------------------------------------------------------------------- trials again
def test_a_trial_of_a_running_sweep_is_to_run_again_once_however_often_it_is_asked_for(store: Store) -> None:
    sweep = held_sweep(store)
    trial = measure(store, sweep, 0, mfu=0.4)
    asked = store.control.rerun(trial.id, now=15.0)
    assert asked.interventions.reruns == (Rerun(number=0, num_runs=2),)
    assert asked.state is RunState.RUNNING
    assert store.control.rerun(trial.id, now=16.0) == asked
    assert renew_lease(store, sweep.id, owner=OWNER, now=17.0).num_changes == 1
    assert store.runs.get("sweep", sweep.id).demand == asked.demand
    measure(store, sweep, 1, mfu=0.41)
    assert store.control.rerun(trial.id, now=18.0).interventions.reruns == (Rerun(number=0, num_runs=3),)


def test_a_trial_of_a_finished_sweep_runs_again_and_the_search_does_not(store: Store) -> None:
    sweep = held_sweep(store)
    trial = measure(store, sweep, 0, mfu=0.4)
    cut = start(store, sweep, 1, layout=cpu_layout(micro_batch_size=2))
    finish(store, sweep)
    asked = store.control.rerun(trial.id, now=30.0)
    ended = asked.interventions.ended
    assert asked.state is RunState.QUEUED
    assert ended is not None
    assert (ended.state, ended.reason) == (RunState.COMPLETE, StopReason.TRIAL_BUDGET)
    assert store.get_trial(cut.id).state is TrialState.CANCELLED
    cancelled = store.request_cancel(sweep.id, now=31.0)
    assert (cancelled.state, cancelled.stop_detail) == (RunState.COMPLETE, "4 of 4 trials ran")


def test_a_larger_budget_has_a_sweep_search_on_that_was_only_to_run_a_trial_again(store: Store) -> None:
    sweep = held_sweep(store)
    trial = measure(store, sweep, 0, mfu=0.4)
    cut = start(store, sweep, 1, layout=cpu_layout(micro_batch_size=2))
    finish(store, sweep)
    store.control.rerun(trial.id, now=30.0)
    changed = store.control.change_budget(sweep.id, {"num_trials": 30}, now=31.0)
    assert changed.interventions.ended is None
    assert changed.interventions.reruns == (Rerun(number=0, num_runs=2),)
    assert store.get_trial(cut.id).state is TrialState.QUEUED


def test_a_trial_that_has_not_ended_cannot_run_again(store: Store) -> None:
    trial = start(store, held_sweep(store))
    with pytest.raises(Conflict, match="is running"):
        store.control.rerun(trial.id, now=15.0)


def test_no_trial_runs_again_when_the_time_is_spent(store: Store) -> None:
    sweep = held_sweep(store, budget=Budget(wall_clock_s=5.0))
    trial = end(store, start(store, sweep), TrialFailure(kind=FailureKind.CRASH, message="died"))
    with pytest.raises(Conflict, match="extend its budget"):
        store.control.rerun(trial.id, now=15.0)


# ---------------------------------------------------------------------- all
def asks(store: Store, sweep: Sweep, trial_id: str) -> dict[str, Callable[[], object]]:
    return {
        "pause": lambda: store.runs.pause("sweep", sweep.id, now=15.0),
        "budget": lambda: store.control.change_budget(sweep.id, {"num_trials": 9}, now=15.0),
        "rerun": lambda: store.control.rerun(trial_id, now=15.0),
    }


@pytest.mark.parametrize("what", ["pause", "budget", "rerun"])
def test_a_sweep_that_compares_runs_is_left_alone(store: Store, what: str) -> None:
    sweep = held_sweep(store, challenge=Challenge(incumbent=cpu_layout()))
    trial = end(store, start(store, sweep), measurement())
    with pytest.raises(Conflict, match="retune or a performance regression gate"):
        asks(store, sweep, trial.id)[what]()


@pytest.mark.parametrize("what", ["pause", "budget", "rerun"])
def test_a_sweep_that_is_not_stored_is_not_found(store: Store, what: str) -> None:
    absent = replace(create(store), id="sw-absent")
    with pytest.raises(NotFound):
        asks(store, absent, "sw-absent-0000")[what]()


def test_a_worker_that_lost_its_lease_does_not_pause_the_sweep_of_another(store: Store) -> None:
    sweep = held_sweep(store)
    store.runs.pause("sweep", sweep.id, now=12.0)
    take_over(store, now=100.0)
    with pytest.raises(LeaseLost):
        release_sweep(store, sweep.id, owner=OWNER, now=101.0)


# ---------------------------------------------------------------------- quotas
ADA = Caller(name="ada", scope=Scope.RUN, quota=Quota(unfinished_sweeps=1, accelerator_hours_per_day=10.0))


def finished_sweep_of_ada(store: Store, *, hours: float = 4.0) -> Sweep:
    budget = Budget(num_trials=4, min_gain=0, accelerator_hours=hours)
    sweep, _ = store.create_sweep(sweep_request(budget=budget), now=1.0, caller=ADA)
    claim(store)
    measure(store, sweep, 0, mfu=0.4)
    return finish(store, sweep)


def test_more_hours_than_the_quota_leaves_are_refused_to_the_owner_of_a_sweep(store: Store) -> None:
    sweep = finished_sweep_of_ada(store)
    rich = replace(ADA, quota=Quota(accelerator_hours_per_day=10.0))
    store.create_sweep(sweep_request(budget=Budget(accelerator_hours=9.0)), now=25.0, caller=rich)
    limits = {"num_trials": 9, "accelerator_hours": 8.0}
    with pytest.raises(QuotaExceeded, match="10 accelerator-hours"):
        store.control.change_budget(sweep.id, limits, now=30.0, caller=rich)
    assert store.control.change_budget(sweep.id, limits, now=30.0).request.budget.accelerator_hours == 8.0


def test_a_limit_of_hours_that_is_taken_away_becomes_what_the_quota_leaves(store: Store) -> None:
    sweep = finished_sweep_of_ada(store)
    limits = {"num_trials": 9, "accelerator_hours": None}
    changed = store.control.change_budget(sweep.id, limits, now=30.0, caller=ADA)
    assert changed.request.budget.accelerator_hours == pytest.approx(10.0)


def test_a_sweep_that_is_opened_again_is_one_more_that_is_unfinished(store: Store) -> None:
    sweep = finished_sweep_of_ada(store)
    store.create_sweep(sweep_request(budget=Budget(accelerator_hours=1.0)), now=25.0, caller=ADA)
    with pytest.raises(QuotaExceeded, match="unfinished"):
        store.control.rerun(f"{sweep.id}-0000", now=30.0, caller=ADA)
    assert store.control.rerun(f"{sweep.id}-0000", now=30.0).state is RunState.QUEUED
