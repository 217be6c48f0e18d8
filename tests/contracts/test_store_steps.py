"""Store contract: a step is stored once, and its event tells all of it."""

from __future__ import annotations

from sqlalchemy import select

from autotuner.core import codec
from autotuner.core.trial import Stopped, Trial
from autotuner.store.engine import make_engine, reading
from autotuner.store.sql import Store
from autotuner.store.tables import events
from tests.builders import step_report
from tests.contracts.acts import end, held_sweep, lease_of, start, take_over


def report(store: Store, trial: Trial, *numbers: int) -> None:
    for number in numbers:
        store.add_step(trial.id, step_report(number, loss=5.0 - number / 7), lease=lease_of(store, trial.id), now=12.0)


def steps_told(store: Store, sweep_id: str) -> list[dict[str, object]]:
    return [event.data for event in store.events(sweep_id) if event.kind == "trial.step"]


def test_the_row_of_a_step_says_which_it_is_and_its_reader_is_told_all_of_it(store: Store, database_url: str) -> None:
    trial = start(store, held_sweep(store))
    report(store, trial, 0, 1)
    engine = make_engine(database_url)
    with reading(engine) as connection:
        kept = connection.scalars(select(events.c.data).where(events.c.kind == "trial.step")).all()
    engine.dispose()
    assert kept == [{"trial_id": trial.id, "number": 0, "step": step} for step in (0, 1)]
    for data, told in zip(kept, steps_told(store, trial.sweep_id), strict=True):
        assert told == {**data, **codec.to_plain(step_report(int(str(told["step"])), loss=told["loss"]))}


def test_steps_of_trials_that_run_side_by_side_are_told_with_their_own_figures(store: Store) -> None:
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
