from __future__ import annotations

import pytest

from api.dashboard.views.finding import Words, exact_place, find
from autotuner.core.choices import Recompute
from autotuner.store.sql import memory_store
from tests.api.service import NOW, StoreDriver
from tests.builders import cpu_layout, failure, measurement, sweep_request


@pytest.fixture
def driver() -> StoreDriver:
    return StoreDriver(store=memory_store())


def test_a_search_is_taken_apart_into_a_number_a_layout_and_words_of_sweeps() -> None:
    words = Words.of("Llama tp 4 pp=2 dp8 recompute-full trial 12")
    assert words.number == 12
    assert words.layout == {
        "tensor_parallel_degree": 4,
        "pipeline_parallel_degree": 2,
        "data_parallel_degree": 8,
        "recompute": "full",
    }
    assert words.rest == "llama"
    assert Words.of("zz9 tp0").rest == "zz9 tp0"


def test_replicas_count_sharded_or_not() -> None:
    words = Words.of("dp4")
    assert words.is_meant_by(cpu_layout(data_parallel_replicate_degree=4))
    assert words.is_meant_by(cpu_layout(data_parallel_replicate_degree=2, data_parallel_shard_degree=2))
    assert not words.is_meant_by(cpu_layout(tensor_parallel_degree=4))


def test_an_id_leads_to_its_page_at_once(driver: StoreDriver) -> None:
    sweep = driver.sweep()
    trial = driver.ended(sweep, 0)
    assert exact_place(driver.store, f" {sweep.id} ") == f"/sweeps/{sweep.id}"
    assert exact_place(driver.store, trial.id) == f"/trials/{trial.id}"
    assert exact_place(driver.store, "llama") is None


def test_words_find_sweeps_and_a_number_their_trials(driver: StoreDriver) -> None:
    for name in ("nightly", "other"):
        sweep = driver.sweep(sweep_request(name=name))
        for number in range(3):
            driver.ended(sweep, number, failure() if number == 2 else None)
        driver.finish(sweep)
    found = find(driver.store, "nightly 2", now=NOW)
    assert [sweep.name for sweep in found.sweeps] == ["nightly"]
    assert [(one.sweep.name, one.trial.number, one.mfu) for one in found.numbered] == [("nightly", 2, None)]
    both = find(driver.store, "trial 1", now=NOW)
    assert {one.sweep.name for one in both.numbered} == {"nightly", "other"}


def test_words_of_a_layout_find_the_fastest_trials_that_have_them_all(driver: StoreDriver) -> None:
    sweep = driver.sweep(sweep_request(name="nightly"))
    for number, (mfu, recompute) in enumerate([(0.2, Recompute.FULL), (0.3, Recompute.NONE), (0.4, Recompute.FULL)]):
        layout = cpu_layout(tensor_parallel_degree=2, recompute=recompute)
        driver.ended(sweep, number, measurement(mfu=mfu), layout)
    assert [one.trial.number for one in find(driver.store, "tp2", now=NOW).alike] == [2, 1, 0]
    assert [one.mfu for one in find(driver.store, "tp2 recompute-full", now=NOW).alike] == [0.4, 0.2]
    assert find(driver.store, "tp2 elsewhere", now=NOW).alike == ()
    assert find(driver.store, "tp4", now=NOW).alike == ()
