"""The account of due times: what it calls lost, and what it calls done twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.domain.upkeep.retune import Trigger
from autotuner.ports import Store
from autotuner.store.sql import memory_store
from bench.due_times import account
from tests.contracts.upkeep import announcement, outcome, saved_retune, started_run

FIRST = 600.0


@pytest.fixture
def store() -> Iterator[Store]:
    """With a retune that is due every minute."""
    opened = memory_store()
    saved_retune(opened, due_at=FIRST)
    yield opened
    opened.close()


def run(store: Store, due_at: float, *, num_missed: int = 0, next_due_at: float, tells: bool = True) -> None:
    """A run from its start to its end."""
    expected = store.retunes.get("nightly").next_due_at
    trigger = Trigger.CAUGHT_UP if num_missed else Trigger.CRON
    begun = started_run(
        store,
        expected_due_at=expected,
        due_at=due_at,
        num_missed=num_missed,
        next_due_at=next_due_at,
        trigger=trigger,
    )
    store.retunes.conclude(begun.id, outcome(), now=due_at, announcement=announcement(begun.id) if tells else None)


def test_runs_and_what_they_stand_for_account_for_every_due_time(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0)
    run(store, 780.0, num_missed=2, next_due_at=840.0)
    times = account(store, FIRST)
    assert (times.due, times.started, times.missed, times.caught_up, times.concluded) == (4, 2, 2, 1, 2)
    assert times.is_right


def test_a_due_time_that_nothing_stands_for_is_lost(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0)
    run(store, 780.0, num_missed=1, next_due_at=900.0)
    times = account(store, FIRST)
    assert (times.lost, times.twice) == (2, 0)  # of 660 and 720 one, and 840
    assert not times.is_right


def test_a_due_time_that_two_runs_stand_for_is_run_twice(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0)
    run(store, 660.0, num_missed=1, next_due_at=720.0)
    assert (account(store, FIRST).lost, account(store, FIRST).twice) == (0, 1)


def test_a_sweep_that_no_run_has_was_started_twice(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0)
    store.create_sweep(store.list_sweeps()[0][0].request, now=601.0)
    assert account(store, FIRST).twice == 1


def test_an_outcome_that_nobody_was_told_of_is_not_right(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0, tells=False)
    assert account(store, FIRST).untold == 1
    assert not account(store, FIRST).is_right


def test_an_outcome_that_was_told_twice_is_not_right(store: Store) -> None:
    run(store, 600.0, next_due_at=660.0)
    (ended,), _ = store.retunes.runs("nightly")
    store.announcements.announce(announcement(ended.id, id="an-again"))
    assert account(store, FIRST).twice == 1
