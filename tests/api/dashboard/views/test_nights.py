from __future__ import annotations

from datetime import date

from api.dashboard.views.nights import weeks
from autotuner.domain.upkeep.retune import RetuneRun, Verdict
from autotuner.store.sql import memory_store
from tests.api.service import NOW, StoreDriver
from tests.browser.in_use import finished_run, retune


def nights(num_nights: int) -> list[RetuneRun]:
    """Runs of as many nights from a Thursday on, the newest first as stores list them."""
    driver = StoreDriver(store=memory_store())
    retune(driver)
    return [finished_run(driver, Verdict.UNCHANGED, 1000.0, "", "nightly", night) for night in range(num_nights)][::-1]


def test_a_week_has_seven_days_from_a_monday() -> None:
    found = weeks(nights(5))
    assert [week.nights[0].day.weekday() for week in found] == [0, 0]
    assert all(len(week.nights) == 7 for week in found)
    assert [night.word for night in found[0].nights] == ["", "", "", *["unchanged"] * 4]
    assert found[0].nights[3].day == date(2025, 10, 9)


def test_a_quarter_of_a_year_is_shown_and_what_is_older_is_not() -> None:
    assert len(weeks(nights(120))) == 12


def test_without_a_run_there_is_no_calendar() -> None:
    assert weeks([]) == ()


def test_of_several_runs_of_a_day_the_last_is_shown() -> None:
    first, second = nights(2)[::-1]
    (only,) = [night for week in weeks([first, second]) for night in week.nights if night.run and night.day.day == 9]
    assert only.run is not None
    assert only.run.id == first.id
    assert first.due_at == NOW
