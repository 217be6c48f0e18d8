from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotuner.aside.asides import Inline
from autotuner.search.sweeps.kept_trials import KeptTrials
from autotuner.search.table.sweep_tables import SweepTables
from autotuner.store.sql import memory_store
from tests.api.service import StoreDriver
from tests.builders import cpu_layout, measurement
from tests.unit.search.sweeps.challenged import challenge, challenged


class Counted(Inline):
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def search(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return function(*args, **kwargs)


def test_a_space_is_predicted_once_however_trials_change() -> None:
    driver = StoreDriver(store=memory_store())
    sweep, asides = driver.sweep(), Counted()
    tables, kept = SweepTables(asides), KeptTrials(driver.store)
    every = tables.untried(sweep, kept.of(sweep.id))
    driver.ended(sweep, 0, measurement(), every[0].layout)
    left = tables.untried(sweep, kept.of(sweep.id))
    assert asides.asked == 1
    assert [row.layout for row in left] == [row.layout for row in every[1:]]


def test_ranked_rows_follow_the_trials() -> None:
    driver = StoreDriver(store=memory_store())
    sweep = driver.sweep()
    tables, kept = SweepTables(Inline()), KeptTrials(driver.store)
    assert tables.ranked(sweep, kept.of(sweep.id)) == ()
    driver.ended(sweep, 0, measurement(mfu=0.2))
    driver.ended(sweep, 1, measurement(mfu=0.3), cpu_layout(tensor_parallel_degree=2, micro_batch_size=2))
    ranked = tables.ranked(sweep, kept.of(sweep.id))
    assert [row.trial.number for row in ranked if row.trial] == [1, 0]
    assert tables.ranked(sweep, kept.of(sweep.id)) is ranked


def test_a_sweep_that_searches_nothing_has_no_untried_layouts() -> None:
    driver = StoreDriver(store=memory_store())
    request = challenged(challenge(searches=False))
    sweep = driver.sweep(request)
    assert SweepTables(Counted()).untried(sweep, KeptTrials(driver.store).of(sweep.id)) == ()
