"""Due times of cron expressions, through gaps and repetitions of the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotuner.core.errors import InvalidInput
from autotuner.search.upkeep.retunes.cron import Cron

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def due(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next due times, in the zone's own wall-clock time with its distance from UTC."""
    cron = Cron.read(expression, zone)
    found = islice(cron.due_times(after=at(after, zone)), count)
    return [datetime.fromtimestamp(each, ZoneInfo(zone)).strftime("%m-%d %H:%M %z") for each in found]


def test_a_nightly_expression_is_due_at_the_same_time_of_the_clock_in_winter_and_in_summer() -> None:
    assert due("0 4 * * *", "2026-03-28T00:00", 2) == ["03-28 04:00 +0100", "03-29 04:00 +0200"]


def test_a_time_that_the_clock_leaves_out_is_due_when_the_gap_ends() -> None:
    assert due("30 2 * * *", "2026-03-28T12:00", 2) == ["03-29 03:00 +0200", "03-30 02:30 +0200"]


def test_several_times_in_the_gap_are_due_once() -> None:
    assert due("0,30 2 * * *", "2026-03-28T12:00", 3) == ["03-29 03:00 +0200", "03-30 02:00 +0200", "03-30 02:30 +0200"]


def test_a_time_that_the_clock_repeats_is_due_the_first_time_alone() -> None:
    assert due("30 2 * * *", "2026-10-24T12:00", 2) == ["10-25 02:30 +0200", "10-26 02:30 +0100"]


def test_between_both_times_of_a_repeated_hour_the_next_day_is_due() -> None:
    between = at("2026-10-25T02:10", fold=1)  # 02:10 for the second time; 02:30 was due before the clock was put back
    assert Cron.read("30 2 * * *", BERLIN).next_due_at(after=between) == at("2026-10-26T02:30")


def test_an_expression_for_every_minute_follows_the_clock_through_the_repeated_hour() -> None:
    times = list(islice(Cron.read("*/30 * * * *", BERLIN).due_times(after=at("2026-10-25T01:45")), 5))
    assert {later - earlier for earlier, later in pairwise(times)} == {1800.0}


def test_a_zone_whose_clock_moves_by_half_an_hour_has_its_own_gap() -> None:
    assert due("10 2 * * *", "2026-10-03T12:00", 1, "Australia/Lord_Howe") == ["10-04 02:30 +1100"]


def test_without_a_zone_times_are_of_utc() -> None:
    assert Cron.read("15 3 * * *", "UTC").next_due_at(after=0.0) == datetime(1970, 1, 1, 3, 15, tzinfo=UTC).timestamp()


@given(
    after=st.floats(1_700_000_000, 1_900_000_000),
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
)
def test_due_times_of_a_nightly_expression_rise_and_there_is_one_on_each_day(
    after: float, minute: int, hour: int, zone: str
) -> None:
    times = list(islice(Cron.read(f"{minute} {hour} * * *", zone).due_times(after=after), 4))
    days = [datetime.fromtimestamp(each, ZoneInfo(zone)).date() for each in times]
    assert times[0] > after
    assert all((later - earlier).days == 1 for earlier, later in pairwise(days))


@pytest.mark.parametrize(
    ("cron", "named", "nearest"),
    [
        ("61 2 * * *", "61 for its minute", "59 2 * * *"),
        ("0 25 * * *", "25 for its hour", "0 23 * * *"),
        ("0 2 0 * *", "0 for its day of month", "0 2 1 * *"),
        ("0 2 * * fryday", "fryday for its day of week", "0 2 * * *"),
        ("0 2 * *", "five fields", "0 2 * * *"),
        ("@daily", "five fields", "0 2 * * *"),
        ("0 0 2 * * *", "five fields", "0 2 * * *"),
        ("0 2 30 2 *", "never due", "0 2 * * *"),
        ("", "five fields", "0 2 * * *"),
    ],
)
def test_an_expression_that_is_not_legal_is_refused_with_its_field_and_the_nearest_that_is(
    cron: str, named: str, nearest: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        Cron.read(cron, "UTC")
    assert (refused.value.field, refused.value.nearest) == ("cron", nearest)


@pytest.mark.parametrize(("zone", "nearest"), [("Europe/Berlni", BERLIN), ("../etc/passwd", None), ("Europe", None)])
def test_a_time_zone_that_does_not_exist_is_refused_with_the_nearest_that_does(zone: str, nearest: str | None) -> None:
    with pytest.raises(InvalidInput, match="IANA") as refused:
        Cron.read("0 2 * * *", zone)
    assert refused.value.field == "time_zone"
    assert nearest is None or refused.value.nearest == nearest


def test_an_expression_says_in_words_when_it_is_due() -> None:
    assert Cron.read("0  2 * *   1-5", "UTC").in_words == "At 02:00 on Monday through Friday"
