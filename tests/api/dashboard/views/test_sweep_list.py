from __future__ import annotations

from typing import Any

import pytest

from api.dashboard.views.sweep_list import Asked, SweepList, moment
from api.schemas import SweepPage
from autotuner.domain.runs.sweep import Budget, SweepState
from autotuner.ports import NEWEST_FIRST, Page, SweepColumn, SweepFilter, SweepOrder
from autotuner.store.sql import memory_store
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_cluster, measurement, sweep_request, tiny_job

HOUR_S = 3600.0


def listed(driver: StoreDriver, *, now: float = NOW + 60, **asked: Any) -> SweepList:
    wanted = Asked(**({"where": SweepFilter()} | asked))
    return SweepList.of(SweepPage.of(driver.store, wanted.where, wanted.order, Page(), now), wanted, now)


@pytest.fixture
def driver() -> StoreDriver:
    return StoreDriver(store=memory_store())


def test_an_address_says_what_is_asked_and_nothing_that_goes_without_saying() -> None:
    assert Asked(where=SweepFilter()).query() == "?"
    by_mfu = SweepOrder(column=SweepColumn.MFU)
    asked = Asked(where=SweepFilter(text=" a&b ", state=SweepState.QUEUED, owner="ada"), order=by_mfu, number=3)
    assert asked.query() == "?q=a%26b&state=queued&owner=ada&sort=mfu&order=descending&number=3"
    assert asked.query(state="", number="") == "?q=a%26b&owner=ada&sort=mfu&order=descending"
    assert [words for words, _ in asked.dropped] == ["“a&b”", "state queued", "owner ada"]


def test_a_head_turns_the_order_of_its_column_and_begins_with_what_people_look_for(driver: StoreDriver) -> None:
    heads = {head.label: head for head in listed(driver).heads}
    assert (heads["when"].sort, heads["when"].query) == ("descending", "?sort=created&order=ascending")
    assert (heads["best MFU, %"].sort, heads["best MFU, %"].query) == (None, "?sort=mfu&order=descending")
    assert heads["sweep"].query == "?sort=name&order=ascending"
    assert heads["best so far"].query == ""
    turned = {head.label: head for head in listed(driver, order=SweepOrder(column=SweepColumn.MFU)).heads}
    assert (turned["best MFU, %"].sort, turned["best MFU, %"].query) == ("descending", "?sort=mfu&order=ascending")
    assert turned["when"].query == "?"


def test_a_row_says_what_the_best_trial_reached_and_how_well_that_is_known(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    driver.ended(sweep, 0, measurement(mfu=0.4, step_time_s=2.0, step_time_interval_s=0.02))
    (row,) = listed(driver).rows
    assert (row.kind, row.mfu, row.spread) == ("measured", 0.4, "± 0.4")
    assert row.picture.startswith("<svg")


def test_estimates_have_no_interval_of_measurements(driver: StoreDriver) -> None:
    request = sweep_request(job=tiny_job(num_cores=8), trial_cluster=cpu_cluster(num_cores=2))
    driver.estimated(driver.sweep(request), 0)
    (row,) = listed(driver).rows
    assert (row.kind, row.spread) == ("estimated", "")


def test_a_running_sweep_ends_at_the_rate_of_what_it_has_spent(driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(budget=Budget(num_trials=4)))
    assert listed(driver).rows[0].when == f"began {moment(NOW, NOW)}"
    driver.ended(sweep, 0)
    (row,) = listed(driver, now=NOW + HOUR_S).rows
    assert (row.when, row.at) == (f"ends about {moment(NOW + 4 * HOUR_S, NOW)}", NOW + 4 * HOUR_S)
    driver.finish(sweep)
    assert listed(driver).rows[0].when == moment(NOW + 60, NOW)


def test_the_hours_stand_beside_their_limit_where_there_is_one(driver: StoreDriver) -> None:
    driver.sweep(sweep_request(budget=Budget(num_trials=4, accelerator_hours=200.0)))
    assert listed(driver).rows[0].spent == "0 of 200"


def test_owners_have_a_column_only_where_somebody_was_asked(driver: StoreDriver) -> None:
    driver.sweep()
    assert "owner" not in [head.label for head in listed(driver).heads]


def test_pages_lead_to_their_neighbours(driver: StoreDriver) -> None:
    for number in range(5):
        driver.store.create_sweep(sweep_request(name=str(number)), now=NOW + number)
    asked = Asked(where=SweepFilter(), order=NEWEST_FIRST, number=2)
    found = SweepPage.of(driver.store, asked.where, asked.order, Page(limit=2, offset=2), NOW)
    page = SweepList.of(found, asked, NOW)
    assert (page.first, page.last, page.total) == (3, 4, 5)
    assert (page.newer, page.older) == ("?number=1", "?number=3")


@pytest.mark.parametrize(
    ("at", "said"),
    [(NOW, "08:53"), (NOW - 24 * HOUR_S, "8 Oct 08:53"), (NOW - 400 * 24 * HOUR_S, "4 Sep 2024")],
)
def test_a_moment_is_told_as_short_as_it_can_be(at: float, said: str) -> None:
    assert moment(at, NOW) == said
