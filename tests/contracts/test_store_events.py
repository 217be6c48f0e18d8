"""Store contract: events, and waiting for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotuner.core.errors import Conflict, LeaseLost
from autotuner.core.measurement import FinishedRun, LinkEvent, LinkEventKind
from autotuner.core.sweep import Sweep
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, Trial, TrialState, Waiting
from autotuner.store.sql import Store
from tests.builders import failure, measurement, step_report
from tests.contracts.acts import (
    OTHER,
    add,
    create,
    end,
    finish,
    gate_result,
    held_sweep,
    judge,
    lease_of,
    measure,
    start,
    step,
    take_over,
)


# ---------------------------------------------------------------- events
def kinds(store: Store, sweep_id: str) -> list[str]:
    return [event.kind for event in store.events(sweep_id)]


def test_the_life_of_a_sweep_is_reported_in_order(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    step(store, trial)
    end(store, trial, failure())
    finish(store, sweep)
    assert kinds(store, sweep.id) == [
        "sweep.created",
        "sweep.started",
        "trial.started",
        "trial.step",
        "trial.finished",
        "sweep.finished",
    ]
    assert [event.at for event in store.events(sweep.id)] == [1.0, 10.0, 11.0, 12.0, 12.0, 20.0]


def test_a_takeover_writes_events_of_the_interrupted_trial_and_the_resumed_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    start(store, sweep)
    take_over(store)
    assert kinds(store, sweep.id)[-2:] == ["trial.interrupted", "sweep.resumed"]


def test_a_trial_queued_again_is_reported_as_interrupted(store: Store) -> None:
    sweep = held_sweep(store)
    end(store, start(store, sweep), Stopped(reason="shutdown"))
    assert kinds(store, sweep.id)[-1] == "trial.interrupted"


def test_a_cancelled_queued_sweep_is_reported_as_finished(store: Store) -> None:
    sweep = create(store)
    store.request_cancel(sweep.id, now=2.0)
    store.request_cancel(sweep.id, now=3.0)
    assert kinds(store, sweep.id) == ["sweep.created", "sweep.finished"]


def test_sequences_grow_and_a_reader_resumes_behind_the_last_one_it_saw(store: Store) -> None:
    sweep = held_sweep(store)
    measure(store, sweep, 0, mfu=0.3)
    everything = store.events(sweep.id)
    sequences = [event.sequence for event in everything]
    assert sequences[0] > 0
    assert sequences == sorted(set(sequences))
    assert store.events(sweep.id, limit=2) == everything[:2]
    assert store.events(sweep.id, after=sequences[1]) == everything[2:]
    assert store.events(sweep.id, after=sequences[-1]) == []


def test_events_of_another_sweep_are_left_out(store: Store) -> None:
    sweep = held_sweep(store)
    other = create(store)
    assert {event.sweep_id for event in store.events(sweep.id)} == {sweep.id}
    assert kinds(store, other.id) == ["sweep.created"]


def test_an_event_says_what_a_reader_would_ask_next(store: Store) -> None:
    sweep = held_sweep(store)
    complete = measure(store, sweep, 0, mfu=0.3)
    failed = start(store, sweep, 1)
    store.add_step(failed.id, step_report(4, loss=float("nan")), lease=lease_of(store, failed.id), now=12.0)
    end(store, failed, failure(FailureKind.OOM))
    data = [event.data for event in store.events(sweep.id)]
    assert data[1] == {"state": "running", "stop_reason": None, "stop_detail": ""}
    assert data[3] == {
        "trial_id": complete.id,
        "number": 0,
        "state": "complete",
        "attempts": 1,
        "mfu": 0.3,
        "step_time_s": 0.5,
        "is_simulated": False,
        "failure_kind": None,
        "stop_reason": None,
        "stop_detail": "",
    }
    assert data[5] == {
        "trial_id": failed.id,
        "number": 1,
        "step": 4,
        "is_warmup": False,
        "is_under_trace": False,
        "step_time_s": 0.5,
        "loss": None,
        "tokens_per_s": 1024.0,
        "mfu": 0.25,
    }
    assert (data[6]["state"], data[6]["failure_kind"]) == ("failed", "oom")


def test_a_note_is_reported_with_its_trial(store: Store) -> None:
    trial = start(store, held_sweep(store), 3)
    store.add_note(trial.id, "waits for the machine: another trial runs", lease=lease_of(store, trial.id), now=12.0)
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.at) == ("trial.note", 12.0)
    assert told.data == {"trial_id": trial.id, "number": 3, "note": "waits for the machine: another trial runs"}


def test_a_trial_reports_the_links_that_its_pipeline_found_slow(store: Store) -> None:
    trial = start(store, held_sweep(store), 3)
    event = LinkEvent(step=8, kind=LinkEventKind.REPLANNED, warm_up=(9, 5, 3, 1), delegated=True, cost_s=0.01)
    store.add_link_event(trial.id, event, lease=lease_of(store, trial.id), now=12.0)
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.at) == ("trial.link_event", 12.0)
    facts = {name: told.data[name] for name in ("trial_id", "number", "step", "kind", "warm_up", "delegated")}
    assert facts == {
        "trial_id": trial.id,
        "number": 3,
        "step": 8,
        "kind": "replanned",
        "warm_up": [9, 5, 3, 1],
        "delegated": True,
    }


def test_a_convergence_gate_is_reported_with_its_outcome(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.3)
    judge(store, trial, gate_result())
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.at) == ("trial.gated", 13.0)
    assert (told.data["trial_id"], told.data["state"], told.data["mfu"]) == (trial.id, "complete", 0.3)
    assert (told.data["outcome"], told.data["detail"]) == ("passed", "the candidate's loss differs by 0.1 %")


def test_the_end_of_a_stopped_trial_says_why(store: Store) -> None:
    trial = start(store, held_sweep(store))
    end(store, trial, Stopped(reason="budget", detail="the hour is over"))
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.data["state"]) == ("trial.finished", "cancelled")
    assert (told.data["stop_reason"], told.data["stop_detail"]) == ("budget", "the hour is over")


def test_a_refused_write_leaves_no_event(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    step(store, trial)
    before = store.events(sweep.id)
    with pytest.raises(Conflict):
        store.add_step(trial.id, step_report(), lease=lease_of(store, trial.id), now=13.0)
    with pytest.raises(Conflict):
        store.start_trial(trial.id, lease=lease_of(store, trial.id), now=13.0)
    assert store.events(sweep.id) == before


# ---------------------------------------------------------------- waiting
REASON = "waits until other trials on this machine have ended (process 17 uses the devices)"
RUN = FinishedRun(number=0, seconds=2.5, measurement=measurement(mfu=0.3))


def wait(store: Store, trial: Trial, reason: str | None = REASON, *, now: float) -> Trial:
    return store.set_waiting(trial.id, reason, lease=lease_of(store, trial.id), now=now)


def hours(store: Store, sweep: Sweep, now: float) -> tuple[float, float]:
    """As the overview sums them in SQL, and as the trials themselves say."""
    trials = [store.get_trial(one.id) for one in store.list_trials(sweep.id)[0]]
    spent = store.overview(sweep.id, now=now).progress
    return spent.accelerator_hours, sum(one.accelerator_hours(now) for one in trials)


def test_a_trial_that_waits_says_why_and_since_when(store: Store) -> None:
    sweep = held_sweep(store)
    trial = wait(store, start(store, sweep), now=12.0)
    assert (trial.state, trial.waiting) == (TrialState.WAITING, Waiting(reason=REASON, since=12.0))
    assert store.get_trial(trial.id) == trial
    assert store.overview(sweep.id, now=20.0).num_trials == {TrialState.WAITING: 1}
    again = wait(store, trial, "waits for room on the disk", now=15.0)
    assert again.waiting == Waiting(reason="waits for room on the disk", since=12.0)


def test_waiting_is_reported_as_an_event_and_so_is_its_end(store: Store) -> None:
    sweep = held_sweep(store)
    trial = wait(store, start(store, sweep), now=12.0)
    wait(store, trial, None, now=15.0)
    waits, resumed = store.events(sweep.id)[-2:]
    assert (waits.kind, waits.data["state"], waits.data["waiting"]) == (
        "trial.waiting",
        "waiting",
        {"reason": REASON, "since": 12.0},
    )
    assert (resumed.kind, resumed.data["state"], resumed.data["waiting"]) == ("trial.resumed", "running", None)


def test_waiting_takes_no_accelerator_hours_before_during_or_after_work(store: Store) -> None:
    sweep = held_sweep(store)
    trial = wait(store, start(store, sweep), now=13.0)  # it had worked 2 s
    assert hours(store, sweep, 100.0) == pytest.approx((2 / 3600, 2 / 3600))
    trial = wait(store, trial, None, now=100.0)
    assert hours(store, sweep, 103.0) == pytest.approx((5 / 3600, 5 / 3600))
    trial = wait(store, trial, now=103.0)
    assert hours(store, sweep, 500.0) == pytest.approx((5 / 3600, 5 / 3600))
    trial = store.finish_trial(trial.id, measurement(), lease=lease_of(store, trial.id), now=600.0)
    assert (trial.state, trial.waiting) == (TrialState.COMPLETE, None)
    assert hours(store, sweep, 1000.0) == pytest.approx((5 / 3600, 5 / 3600))


def test_a_trial_that_is_cancelled_while_it_waits_has_cost_nothing(store: Store) -> None:
    sweep = held_sweep(store)
    trial = wait(store, start(store, sweep), now=11.0)
    ended = store.finish_trial(trial.id, Stopped(reason="cancelled"), lease=lease_of(store, trial.id), now=600.0)
    assert ended.state is TrialState.CANCELLED
    assert hours(store, sweep, 1000.0) == (0.0, 0.0)


def test_a_quota_counts_no_waiting(store: Store) -> None:
    sweep = held_sweep(store)
    wait(store, start(store, sweep), now=13.0)
    used = store.access.usage(sweep.created_by, now=500.0)
    assert used.accelerator_hours == pytest.approx(2 / 3600)


def test_a_trial_whose_job_is_in_a_queue_waits_until_the_job_runs(store: Store) -> None:
    trial = start(store, held_sweep(store))
    job = EngineJob(engine="slurm", name="a-0", handle="4711", submitted_at=11.0, detail="Resources")
    queued = store.set_job(trial.id, job, lease=lease_of(store, trial.id), now=15.0)
    assert queued.state is TrialState.WAITING
    assert queued.waiting == Waiting(reason="waits in the queue of slurm: Resources", since=11.0)
    assert (
        wait(store, queued, None, now=16.0).waiting == queued.waiting
    )  # the engine answers again; the job still waits
    running = replace(job, phase=EngineJobPhase.RUNNING, started_at=17.0, detail="")
    assert store.set_job(trial.id, running, lease=lease_of(store, trial.id), now=17.0).state is TrialState.RUNNING


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_service_that_dies_while_a_trial_waits_has_not_died_of_the_trial(store: Store, is_waiting: bool) -> None:
    trial = start(store, held_sweep(store))
    if is_waiting:
        wait(store, trial, now=12.0)
    take_over(store)
    queued = store.get_trial(trial.id)
    assert (queued.state, queued.waiting, queued.attempts) == (TrialState.QUEUED, None, 0 if is_waiting else 1)


def test_a_trial_that_is_taken_over_keeps_its_finished_runs_and_their_steps(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial, 0)
    store.add_run(trial.id, RUN, lease=lease_of(store, trial.id))
    take_over(store)
    queued = store.get_trial(trial.id)
    assert (queued.state, queued.runs, queued.steps) == (TrialState.QUEUED, (RUN,), (step_report(0),))
    started = store.start_trial(trial.id, lease=lease_of(store, trial.id, OTHER), now=51.0)
    assert started.runs == (RUN,)
    ended = store.finish_trial(trial.id, measurement(), lease=lease_of(store, trial.id, OTHER), now=52.0)
    assert store.get_trial(ended.id).runs == ()


def test_a_run_that_is_stored_twice_is_kept_once(store: Store) -> None:
    trial = start(store, held_sweep(store))
    for run in (RUN, replace(RUN, number=1), RUN):
        store.add_run(trial.id, run, lease=lease_of(store, trial.id))
    assert [run.number for run in store.get_trial(trial.id).runs] == [1, 0]


def test_only_a_started_trial_waits_or_has_runs_and_only_its_owner_says_so(store: Store) -> None:
    sweep = held_sweep(store)
    queued, done = add(store, sweep, 0), measure(store, sweep, 1, mfu=0.3)
    for trial in (queued, done):
        with pytest.raises(Conflict):
            wait(store, trial, now=12.0)
        with pytest.raises(Conflict):
            store.add_run(trial.id, RUN, lease=lease_of(store, trial.id))
    with pytest.raises(LeaseLost):
        store.set_waiting(queued.id, REASON, lease=lease_of(store, queued.id, OTHER), now=12.0)
    with pytest.raises(LeaseLost):
        store.add_run(queued.id, RUN, lease=lease_of(store, queued.id, OTHER))
    assert end(store, start(store, sweep, 2), measurement()).state is TrialState.COMPLETE
