"""Store contract: what is old is thinned or removed, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import insert, select

from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Outcome, Stopped, trial_id
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.retention import Thinned
from autotuner.store.sql import Store
from autotuner.store.tables import audit, sweeps
from tests import runs
from tests.announcements import announce
from tests.builders import failure, measurement, step_timeline
from tests.contracts.acts import create, end, finish, held_sweep, lease_of, start, step
from tests.contracts.upkeep import announcement, webhook


def lived_sweep(store: Store, *, ended_at: float = 20.0) -> Sweep:
    """Of its trials one was measured, one ended early, one failed: each with two steps, a note and a dead link."""
    sweep = held_sweep(store)
    outcomes: tuple[Outcome, ...] = (measurement(), Stopped(reason="pruned"), failure())
    for number, outcome in enumerate(outcomes):
        trial = start(store, sweep, number)
        for moment in (0, 1):
            step(store, trial, moment)
        store.add_note(trial.id, "waits for the machine", lease=lease_of(store, trial.id), now=12.0)
        found = LinkEvent(step=1, kind=LinkEventKind.LINK_DEAD, stages=(0, 1))
        store.add_link_event(trial.id, found, lease=lease_of(store, trial.id), now=12.0)
        end(store, trial, outcome)
    return finish(store, sweep, now=ended_at)


def test_a_sweep_is_thinned_once_from_its_age_on(store: Store) -> None:
    lived_sweep(store, ended_at=20.0)
    assert store.retention.thin_sweep(before=19.9, now=100.0) is None
    thinned = store.retention.thin_sweep(before=20.0, now=100.0)
    assert thinned == Thinned(num_sweeps=1, num_steps=2, num_events=12)
    assert store.retention.thin_sweep(before=20.0, now=101.0) is None


def test_steps_of_measured_trials_go_and_those_that_later_sweeps_learn_from_stay(store: Store) -> None:
    sweep = lived_sweep(store)
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert [len(store.get_trial(trial_id(sweep.id, number)).steps) for number in range(3)] == [0, 2, 2]


def test_what_was_measured_and_told_of_beginnings_and_ends_outlives_the_thinning(store: Store) -> None:
    sweep = lived_sweep(store)
    before = (store.list_trials(sweep.id), store.ranking(sweep.id), store.overview(sweep.id, now=50.0))
    inside = ("trial.step", "trial.link_event", "trial.note")
    events = [event for event in store.events(sweep.id) if event.kind not in inside]
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert (store.list_trials(sweep.id), store.ranking(sweep.id), store.overview(sweep.id, now=50.0)) == before
    assert store.events(sweep.id) == events


def test_the_timeline_of_a_measured_step_goes_with_the_steps(store: Store) -> None:
    sweep = held_sweep(store)
    trial = end(store, start(store, sweep), measurement(timeline=step_timeline()))
    finish(store, sweep, now=20.0)
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert store.get_trial(trial.id).measurement == measurement()


def test_an_unfinished_sweep_is_never_thinned(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial)
    create(store)
    assert store.retention.thin_sweep(before=1e12, now=1e12) is None


def test_a_sweep_that_ended_again_is_thinned_again(store: Store, database_url: str) -> None:
    lived_sweep(store)
    store.retention.thin_sweep(before=20.0, now=100.0)
    engine = make_engine(database_url)
    with writing(engine) as connection:
        connection.execute(sweeps.update().values(finished_at=200.0))
    engine.dispose()
    thinned = store.retention.thin_sweep(before=200.0, now=300.0)
    assert thinned == Thinned(num_sweeps=1)


def test_the_sweep_that_ended_first_is_thinned_first(store: Store) -> None:
    late = lived_sweep(store, ended_at=30.0)
    early = lived_sweep(store, ended_at=25.0)
    num_events = {sweep.id: len(store.events(sweep.id)) for sweep in (late, early)}
    for sweep in (early, late):
        assert len(store.events(sweep.id)) == num_events[sweep.id]
        assert store.retention.thin_sweep(before=50.0, now=100.0) is not None
        assert len(store.events(sweep.id)) < num_events[sweep.id]
    assert store.retention.thin_sweep(before=50.0, now=100.0) is None


# ---------------------------------------------------------------------- announcements and the audit log
def test_old_announcements_go_with_their_deliveries(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement("old"))
    runs.end(store, runs.claimed(store, "delivery"), RunState.COMPLETE, "200")
    young = replace(announcement("young"), at=50.0)
    announce(store.announcements, young)
    assert [store.retention.prune_announcements(before=50.0) for _ in range(2)] == [1, 0]
    assert store.announcements.feed() == ([young], 1)
    assert store.announcements.deliveries()[1] == 1


def test_an_announcement_that_is_yet_to_be_delivered_stays(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement())
    assert store.retention.prune_announcements(before=1e12) == 0
    assert store.announcements.feed()[1] == 1


@pytest.mark.parametrize("num_entries", [3, 1001])
def test_old_entries_of_the_audit_log_are_removed(store: Store, database_url: str, num_entries: int) -> None:
    values = {"caller": "ana", "action": "a", "subject": "/", "status": 200, "request_id": "r", "address": "::1"}
    engine = make_engine(database_url)
    with writing(engine) as connection:
        rows = [{"id": f"{number:04d}", "at": float(number), **values} for number in range(num_entries + 1)]
        connection.execute(insert(audit), rows)
    removed = 0
    while num := store.retention.prune_audit(before=float(num_entries)):
        removed += num
    with reading(engine) as connection:
        assert connection.scalars(select(audit.c.at)).all() == [float(num_entries)]
    engine.dispose()
    assert removed == num_entries
