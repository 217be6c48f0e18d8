"""What the store keeps in memory, and for how long it keeps the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from autotuner.core.errors import NotFound
from autotuner.core.trial import TrialState, trial_id
from autotuner.store.cache import KeptTrials
from autotuner.store.descriptions import new_id
from autotuner.store.options import Ages
from autotuner.store.retention import Thinned
from autotuner.store.sql import Store, memory_store
from tests.announcements import announce
from tests.api.service import StoreDriver
from tests.builders import engine_job, measurement
from tests.contracts.acts import finish, held_sweep, measure
from tests.contracts.upkeep import announcement


# ---------------------------------------------------------------- cache
class Counting(Store):
    """A store that counts how often trials are read, many at once or one alone."""

    lists = 0
    singles = 0

    def list_trials(self, *args: Any, **kwargs: Any) -> Any:
        self.lists += 1
        return super().list_trials(*args, **kwargs)

    def get_trial(self, trial_id: str) -> Any:
        self.singles += 1
        return super().get_trial(trial_id)


@pytest.fixture
def driver() -> StoreDriver:
    return StoreDriver(store=memory_store())


def test_the_kept_copy_always_equals_the_stored_run(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    kept = KeptTrials(driver.store)

    def same() -> bool:
        return list(kept.of(sweep.id).trials) == list(driver.store.all_trials(sweep.id))

    assert same()
    first = driver.running(sweep, 0)
    assert same()
    driver.placed(first, engine_job())
    assert same()
    driver.end(first, measurement())
    driver.queued(sweep, 1)
    assert same()
    driver.queued(sweep, 3)
    assert same()
    driver.queued(sweep, 2)  # later than one that comes after it
    assert same()
    driver.estimated(sweep, 4)
    assert same()
    driver.finish(sweep)  # cancels what waits, without a word on each
    assert same()
    assert kept.of(sweep.id).trials[1].state is TrialState.CANCELLED


def test_nothing_is_read_again_while_nothing_changed_but_steps(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.running(sweep, 0)
    store = Counting(driver.store._engine)
    kept = KeptTrials(store)
    first = kept.of(sweep.id)
    driver.step(trial, 1)
    assert kept.of(sweep.id) is first
    assert (store.lists, store.singles) == (1, 0)


def test_a_trial_that_changed_is_read_alone(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trials = [driver.running(sweep, number) for number in range(3)]
    store = Counting(driver.store._engine)
    kept = KeptTrials(store)
    kept.of(sweep.id)
    driver.end(trials[1])
    assert kept.of(sweep.id).trials[1].state is TrialState.COMPLETE
    assert store.singles == 1


def test_results_from_trials_are_computed_once_until_the_trials_change(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    kept = KeptTrials(driver.store)
    asked: list[int] = []
    for _ in range(2):
        assert kept.of(sweep.id).once("count", lambda: asked.append(1) or len(asked)) == 1  # type: ignore[func-returns-value]
    driver.ended(sweep, 0)
    assert kept.of(sweep.id).once("count", lambda: "again") == "again"


def test_the_sweep_that_nobody_asked_for_longest_makes_room(driver: StoreDriver) -> None:
    sweeps = [driver.sweep() for _ in range(3)]
    for sweep in sweeps:
        driver.ended(sweep, 0)
    store = Counting(driver.store._engine)
    kept = KeptTrials(store, most=4)
    for sweep in (*sweeps[:2], sweeps[0], sweeps[2]):
        kept.of(sweep.id)
    before = store.lists
    kept.of(sweeps[0].id)
    assert store.lists == before
    kept.of(sweeps[1].id)
    assert store.lists == before + 1


def test_one_sweep_stays_even_if_it_is_large(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0)
    kept = KeptTrials(driver.store, most=0)
    assert kept.of(sweep.id) is kept.of(sweep.id)


def test_a_sweep_that_is_not_stored_is_not_found(driver: StoreDriver) -> None:
    with pytest.raises(NotFound):
        KeptTrials(driver.store).of("sw-none")


# ---------------------------------------------------------------- retention
DAY_S = 86_400.0


@pytest.fixture
def filled_store() -> Iterator[Store]:
    """Three sweeps that ended at 20 and an announcement of that time, which ended sweeps add to."""
    opened = memory_store()
    for _ in range(3):
        sweep = held_sweep(opened)
        measure(opened, sweep, 0, mfu=0.3)
        finish(opened, sweep, now=20.0)
    announce(opened.announcements, announcement())
    yield opened
    opened.close()


def test_everything_old_is_removed_in_one_run(filled_store: Store) -> None:
    ages = Ages(steps=2, announcements=1, plans=3, audit=1)
    assert filled_store.retention.run(ages, now=20.0 + DAY_S / 2) == Thinned()
    assert filled_store.retention.run(ages, now=21.0 + DAY_S) == Thinned(num_announcements=4)
    assert filled_store.retention.run(ages, now=21.0 + 2 * DAY_S) == Thinned(num_sweeps=3)


def test_an_age_of_none_keeps_everything(filled_store: Store) -> None:
    ages = Ages(steps=None, announcements=None, plans=None, audit=None)
    assert filled_store.retention.run(ages, now=1e12) == Thinned()


def test_a_step_removes_one_sweep_so_that_nobody_waits_long(filled_store: Store) -> None:
    ages = Ages(steps=1, announcements=None, plans=None, audit=None)
    steps = [filled_store.retention.step(ages, now=1e9) for _ in range(4)]
    assert [step is not None and step.num_sweeps for step in steps] == [1, 1, 1, False]


# ---------------------------------------------------------------- descriptions
def test_a_sweep_id_is_ten_random_base_32_characters() -> None:
    ids = {new_id("sw") for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"sw-[a-z2-7]{10}", sweep_id) for sweep_id in ids)


def test_trial_ids_of_a_sweep_sort_by_number() -> None:
    ids = [trial_id("sw-x", number) for number in (0, 9, 10, 999, 9999)]
    assert ids[1] == "sw-x-0009"
    assert ids == sorted(ids)
