"""Store contract: releases that differ share a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from autotuner.core.errors import Conflict
from autotuner.core.run import RunState, StopReason
from autotuner.core.trial import Stopped, TrialState, TrialsVersion
from autotuner.store.engine import make_engine
from autotuner.store.sql import Store
from tests.builders import engine_job, estimate, measurement, proxy_trial
from tests.contracts.acts import (
    add,
    claim,
    create,
    end,
    gate_result,
    held_sweep,
    judge,
    lease_of,
    measure,
    start,
    step,
    take_over,
)


# ---------------------------------------------------------------- versions
def test_every_change_of_a_trial_is_another_version(store: Store) -> None:
    sweep = held_sweep(store)
    seen = [store.trials_version(sweep.id)]

    def look() -> None:
        seen.append(store.trials_version(sweep.id))

    first = start(store, sweep, 0)
    look()
    store.set_job(first.id, engine_job(), lease=lease_of(store, first.id), now=11.0)
    look()
    end(store, first, measurement())
    look()
    judge(store, first, gate_result())
    look()
    end(store, start(store, sweep, 1), Stopped(reason="pruned"))
    look()
    add(store, sweep, 2)
    look()
    assert len(set(seen)) == len(seen)


def test_estimates_are_another_version(store: Store) -> None:
    sweep = held_sweep(store)
    small = measure(store, sweep, 0, mfu=0.3, proxy=proxy_trial())
    before = store.trials_version(sweep.id)
    store.set_estimates(sweep.id, {small.id: estimate()}, lease=lease_of(store, sweep.id), now=14.0)
    assert store.trials_version(sweep.id) != before


def test_steps_are_no_other_version(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep, 0)
    before = store.trials_version(sweep.id)
    for number in range(3):
        step(store, trial, number)
    assert store.trials_version(sweep.id) == before


def test_each_sweep_has_a_version_of_its_own(store: Store) -> None:
    first = held_sweep(store)
    create(store)
    second = claim(store)
    before = store.trials_version(first.id)
    measure(store, second, 0, mfu=0.3)
    assert store.trials_version(first.id) == before
    assert before == TrialsVersion(last_event=before.last_event, num_trials=0)


# ---------------------------------------------------------------- releases
NEWER = '{"schema_version": 1, "what_a_newer_release_asks": true}'


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def own_store(engine: Engine) -> Store:
    return Store(engine)


def overwrite(engine: Engine, statement: str, sweep_id: str) -> None:
    """Store what a newer release would."""
    with engine.begin() as connection:
        connection.execute(text(statement), {"newer": NEWER, "id": sweep_id})


REQUEST = "UPDATE runs SET request = :newer WHERE id = :id"
LAYOUTS = "UPDATE trials SET layout = :newer WHERE sweep_id = :id"


def test_a_sweep_that_cannot_be_read_is_failed_by_a_claim_which_goes_on_to_the_next(
    own_store: Store, engine: Engine
) -> None:
    unreadable, next_one = create(own_store, now=1.0), create(own_store, now=2.0)
    overwrite(engine, REQUEST, unreadable.id)
    assert claim(own_store).id == next_one.id
    failed = own_store.overview(unreadable.id, now=20.0)
    assert (failed.state, failed.stop_reason, failed.finished_at) == (RunState.FAILED, StopReason.ERROR, 10.0)
    assert "this release cannot read" in failed.stop_detail
    assert "what_a_newer_release_asks" in failed.stop_detail
    assert own_store.events(unreadable.id)[-1].data["stop_reason"] == "error"


def test_a_sweep_whose_running_trial_cannot_be_read_is_failed_with_its_trials(own_store: Store, engine: Engine) -> None:
    create(own_store)
    held = claim(own_store)
    start(own_store, held, 0)
    add(own_store, held, 1)
    overwrite(engine, LAYOUTS, held.id)
    assert take_over(own_store) is None
    failed = own_store.overview(held.id, now=60.0)
    assert (failed.state, failed.num_trials) == (RunState.FAILED, {TrialState.CANCELLED: 2})


@pytest.mark.parametrize("is_held", [False, True])
def test_a_sweep_that_cannot_be_read_is_ended_by_who_asks_for_its_end(
    own_store: Store, engine: Engine, is_held: bool
) -> None:
    sweep = create(own_store)
    if is_held:
        start(own_store, claim(own_store), 0)
    overwrite(engine, REQUEST, sweep.id)
    for _ in range(2):
        with pytest.raises(Conflict, match="ended as failed"):
            own_store.request_cancel(sweep.id, now=20.0)
    failed = own_store.overview(sweep.id, now=60.0)
    assert (failed.state, failed.stop_reason, failed.finished_at) == (RunState.FAILED, StopReason.ERROR, 20.0)
    assert [event.kind for event in own_store.events(sweep.id)].count("sweep.finished") == 1
    assert own_store.announcements.feed()[1] == 1


def test_lists_show_the_sweeps_beside_one_that_cannot_be_read(own_store: Store, engine: Engine) -> None:
    unreadable, other = create(own_store, now=1.0), create(own_store, now=2.0)
    overwrite(engine, REQUEST, unreadable.id)
    assert [found.id for found in own_store.list_overviews(now=3.0)[0]] == [other.id, unreadable.id]


def test_a_budget_with_a_field_of_a_newer_release_is_shown_by_the_fields_that_are_known(
    own_store: Store, engine: Engine
) -> None:
    sweep = create(own_store)
    overwrite(engine, "UPDATE sweeps SET budget = :newer WHERE id = :id", sweep.id)
    assert own_store.overview(sweep.id, now=3.0).budget.num_trials == 20
