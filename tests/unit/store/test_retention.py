from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotuner.store.options import Ages
from autotuner.store.retention import Thinned
from autotuner.store.sql import Store, memory_store
from tests.announcements import announce
from tests.contracts.acts import finish, held_sweep, measure
from tests.contracts.upkeep import announcement

DAY_S = 86_400.0


@pytest.fixture
def store() -> Iterator[Store]:
    """Three sweeps that ended at 20 and an announcement of that time, which ended sweeps add to."""
    opened = memory_store()
    for _ in range(3):
        sweep = held_sweep(opened)
        measure(opened, sweep, 0, mfu=0.3)
        finish(opened, sweep, now=20.0)
    announce(opened.announcements, announcement())
    yield opened
    opened.close()


def test_everything_old_is_removed_in_one_run(store: Store) -> None:
    ages = Ages(steps=2, announcements=1, plans=3, audit=1)
    assert store.retention.run(ages, now=20.0 + DAY_S / 2) == Thinned()
    assert store.retention.run(ages, now=21.0 + DAY_S) == Thinned(num_announcements=4)
    assert store.retention.run(ages, now=21.0 + 2 * DAY_S) == Thinned(num_sweeps=3)


def test_an_age_of_none_keeps_everything(store: Store) -> None:
    ages = Ages(steps=None, announcements=None, plans=None, audit=None)
    assert store.retention.run(ages, now=1e12) == Thinned()


def test_a_step_removes_one_sweep_so_that_nobody_waits_long(store: Store) -> None:
    ages = Ages(steps=1, announcements=None, plans=None, audit=None)
    steps = [store.retention.step(ages, now=1e9) for _ in range(4)]
    assert [step is not None and step.num_sweeps for step in steps] == [1, 1, 1, False]
