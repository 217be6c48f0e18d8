"""Store contract: every change writes its event, and a reader misses none."""

from __future__ import annotations

import pytest

from autotuner.core.errors import Conflict
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.trial import FailureKind, Stopped
from autotuner.store.sql import Store
from tests.builders import failure, step_report
from tests.contracts.acts import (
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


def kinds(store: Store, sweep_id: str) -> list[str]:
    return [event.kind for event in store.events(sweep_id)]


def test_the_life_of_a_sweep_is_told_in_order(store: Store) -> None:
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


def test_a_takeover_tells_of_the_interrupted_trial_and_the_resumed_sweep(store: Store) -> None:
    sweep = held_sweep(store)
    start(store, sweep)
    take_over(store)
    assert kinds(store, sweep.id)[-2:] == ["trial.interrupted", "sweep.resumed"]


def test_a_trial_queued_again_is_told_as_interrupted(store: Store) -> None:
    sweep = held_sweep(store)
    end(store, start(store, sweep), Stopped(reason="shutdown"))
    assert kinds(store, sweep.id)[-1] == "trial.interrupted"


def test_a_cancelled_queued_sweep_is_told_as_finished(store: Store) -> None:
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


def test_events_of_another_sweep_are_not_told(store: Store) -> None:
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


def test_a_note_is_told_with_its_trial(store: Store) -> None:
    trial = start(store, held_sweep(store), 3)
    store.add_note(trial.id, "waits for the machine: another trial runs", lease=lease_of(store, trial.id), now=12.0)
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.at) == ("trial.note", 12.0)
    assert told.data == {"trial_id": trial.id, "number": 3, "note": "waits for the machine: another trial runs"}


def test_what_a_pipeline_found_out_about_a_link_is_told_with_its_trial(store: Store) -> None:
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


def test_a_loss_gate_is_told_with_its_outcome(store: Store) -> None:
    trial = measure(store, held_sweep(store), 0, mfu=0.3)
    judge(store, trial, gate_result())
    told = store.events(trial.sweep_id)[-1]
    assert (told.kind, told.at) == ("trial.gated", 13.0)
    assert (told.data["trial_id"], told.data["state"], told.data["mfu"]) == (trial.id, "complete", 0.3)
    assert (told.data["outcome"], told.data["detail"]) == ("passed", "the loss is 0.1 % from the reference's")


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
