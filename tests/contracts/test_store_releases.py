"""Store contract: a record that this release cannot read holds up no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from autotuner.core.errors import Conflict
from autotuner.core.run import RunState, StopReason
from autotuner.core.trial import TrialState
from autotuner.store.engine import make_engine
from autotuner.store.sql import Store
from tests.contracts.acts import add, claim, create, start, take_over

NEWER = '{"schema_version": 1, "what_a_newer_release_asks": true}'


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url)
    yield made
    made.dispose()


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


def overwrite(engine: Engine, statement: str, sweep_id: str) -> None:
    """Store what a newer release would."""
    with engine.begin() as connection:
        connection.execute(text(statement), {"newer": NEWER, "id": sweep_id})


REQUEST = "UPDATE runs SET request = :newer WHERE id = :id"
LAYOUTS = "UPDATE trials SET layout = :newer WHERE sweep_id = :id"


def test_a_sweep_that_cannot_be_read_is_failed_by_a_claim_which_goes_on_to_the_next(
    store: Store, engine: Engine
) -> None:
    unreadable, next_one = create(store, now=1.0), create(store, now=2.0)
    overwrite(engine, REQUEST, unreadable.id)
    assert claim(store).id == next_one.id
    failed = store.overview(unreadable.id, now=20.0)
    assert (failed.state, failed.stop_reason, failed.finished_at) == (RunState.FAILED, StopReason.ERROR, 10.0)
    assert "this release cannot read" in failed.stop_detail
    assert "what_a_newer_release_asks" in failed.stop_detail
    assert store.events(unreadable.id)[-1].data["stop_reason"] == "error"


def test_a_sweep_whose_running_trial_cannot_be_read_is_failed_with_its_trials(store: Store, engine: Engine) -> None:
    create(store)
    held = claim(store)
    start(store, held, 0)
    add(store, held, 1)
    overwrite(engine, LAYOUTS, held.id)
    assert take_over(store) is None
    failed = store.overview(held.id, now=60.0)
    assert (failed.state, failed.num_trials) == (RunState.FAILED, {TrialState.CANCELLED: 2})


@pytest.mark.parametrize("is_held", [False, True])
def test_a_sweep_that_cannot_be_read_is_ended_by_who_asks_for_its_end(
    store: Store, engine: Engine, is_held: bool
) -> None:
    sweep = create(store)
    if is_held:
        start(store, claim(store), 0)
    overwrite(engine, REQUEST, sweep.id)
    for _ in range(2):
        with pytest.raises(Conflict, match="ended as failed"):
            store.request_cancel(sweep.id, now=20.0)
    failed = store.overview(sweep.id, now=60.0)
    assert (failed.state, failed.stop_reason, failed.finished_at) == (RunState.FAILED, StopReason.ERROR, 20.0)
    assert [event.kind for event in store.events(sweep.id)].count("sweep.finished") == 1
    assert store.announcements.feed()[1] == 1


def test_lists_show_the_sweeps_beside_one_that_cannot_be_read(store: Store, engine: Engine) -> None:
    unreadable, other = create(store, now=1.0), create(store, now=2.0)
    overwrite(engine, REQUEST, unreadable.id)
    assert [found.id for found in store.list_overviews(now=3.0)[0]] == [other.id, unreadable.id]


def test_a_budget_with_a_field_of_a_newer_release_is_shown_by_the_fields_that_are_known(
    store: Store, engine: Engine
) -> None:
    sweep = create(store)
    overwrite(engine, "UPDATE sweeps SET budget = :newer WHERE id = :id", sweep.id)
    assert store.overview(sweep.id, now=3.0).budget.num_trials == 20
