"""Which run is due: by the clock, late, for several at once, or not at all."""

from __future__ import annotations

import pytest

from autotuner.core.upkeep import Trigger
from autotuner.search.upkeep.retunes.cron import Cron
from autotuner.search.upkeep.retunes.due import DueRun, due_run, first_due_at
from tests.unit.search.upkeep.builders import NIGHT, retune

DAY = 86400.0


def test_nothing_is_due_before_its_time_or_while_the_retune_is_paused() -> None:
    assert due_run(retune(), now=NIGHT - 1, is_running=False) is None
    assert due_run(retune(is_paused=True, next_due_at=None), now=NIGHT, is_running=False) is None


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_a_due_time_that_has_just_come_starts_a_run_and_sets_the_next(late: float) -> None:
    assert due_run(retune(), now=NIGHT + late, is_running=False) == DueRun(
        expected_due_at=NIGHT, due_at=NIGHT, next_due_at=NIGHT + DAY, trigger=Trigger.CRON
    )


def test_a_due_time_that_nobody_was_there_for_is_caught_up() -> None:
    found = due_run(retune(), now=NIGHT + 3600, is_running=False)
    assert found is not None
    assert (found.due_at, found.num_missed, found.trigger) == (NIGHT, 0, Trigger.CAUGHT_UP)


def test_one_run_stands_for_all_due_times_that_were_missed() -> None:
    assert due_run(retune(), now=NIGHT + 3 * DAY + 1, is_running=False) == DueRun(
        expected_due_at=NIGHT,
        due_at=NIGHT + 3 * DAY,
        next_due_at=NIGHT + 4 * DAY,
        trigger=Trigger.CAUGHT_UP,
        num_missed=3,
    )


def test_what_was_missed_is_counted_up_to_ten_thousand_and_the_next_due_time_is_later_than_now() -> None:
    now = NIGHT + 30 * DAY
    found = due_run(retune(cron="* * * * *"), now=now, is_running=False)
    assert found is not None
    assert (found.num_missed, found.next_due_at) == (10_000, now + 60)


def test_a_due_time_while_the_run_before_it_goes_on_is_skipped() -> None:
    found = due_run(retune(), now=NIGHT, is_running=True)
    assert found is not None
    assert (found.skipped, found.next_due_at) == (True, NIGHT + DAY)


def test_what_came_before_a_retune_was_stored_is_not_caught_up() -> None:
    assert first_due_at(Cron.read("0 2 * * *", "UTC"), now=NIGHT + 1) == NIGHT + DAY


def test_due_times_are_those_of_the_retunes_own_time_zone() -> None:
    berlin = retune(cron="0 3 * * *", time_zone="Europe/Berlin")
    found = due_run(berlin, now=NIGHT, is_running=False)
    assert found is not None
    assert found.next_due_at == NIGHT + DAY
