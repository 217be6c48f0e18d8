"""Store contract: lists of sweeps are searched, filtered and ordered where they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.run import RunState
from autotuner.core.sweep import Sweep
from autotuner.store.options import ALL_SWEEPS, NEWEST_FIRST, Page, SweepColumn, SweepFilter, SweepOrder
from autotuner.store.sql import Store
from tests.builders import cpu_cluster, measurement, sweep_request, tiny_job, tiny_model
from tests.contracts.acts import claim, create, end, finish, start


def asked(store: Store, owner: str, *, now: float = 1.0, name: str = "") -> Sweep:
    return store.create_sweep(sweep_request(name=name), now=now, caller=Caller(name=owner, scope=Scope.RUN))[0]


def names(
    store: Store, where: SweepFilter = ALL_SWEEPS, order: SweepOrder = NEWEST_FIRST, page: Page = Page()
) -> Sequence[str]:
    return [found.name for found in store.list_overviews(now=20.0, where=where, order=order, page=page)[0]]


def measured(store: Store, name: str, *mfus: float, now: float) -> Sweep:
    create(store, name=name, now=now)
    sweep = claim(store)
    for number, mfu in enumerate(mfus):
        end(store, start(store, sweep, number), measurement(mfu=mfu, tokens_per_s=1000 * (1 - mfu)))
    return finish(store, sweep)


def test_a_search_finds_words_of_name_id_model_cluster_and_owner_in_any_case(store: Store) -> None:
    model = tiny_model(name="Large-Model")
    job = tiny_job(model=model, cluster=cpu_cluster(name="Pool-7"))
    ada = Caller(name="ada0", scope=Scope.RUN)  # no id holds a 0
    found, _ = store.create_sweep(sweep_request(name="Nightly", job=job), now=1.0, caller=ada)
    asked(store, "bob", name="other")
    for text in ("nightly", "LARGE-model", "pool-7", "ADA0", found.id, "night  pool", found.id[3:9]):
        assert names(store, SweepFilter(text=text)) == ["Nightly"], text
    assert names(store, SweepFilter(text="nightly bob")) == []


@pytest.mark.parametrize("text", ["%", "_", "/", "\\", "\0", "'", '"', "\ud800"])
def test_a_search_takes_every_character_as_itself(store: Store, text: str) -> None:
    create(store, name="plain")
    assert names(store, SweepFilter(text=text)) == []


def test_a_search_finds_characters_that_databases_give_a_meaning(store: Store) -> None:
    create(store, name="100%_sure")
    create(store, name="100 sure", now=2.0)
    assert names(store, SweepFilter(text="0%_s")) == ["100%_sure"]


def test_filters_hold_together_and_the_total_counts_what_passes(store: Store) -> None:
    asked(store, "ada", name="done")
    finish(store, claim(store))
    asked(store, "ada", name="waits")
    asked(store, "bob", name="waits too")
    where = SweepFilter(owner="ada", state=RunState.QUEUED)
    found, total = store.list_overviews(now=20.0, where=where)
    assert ([one.name for one in found], total) == (["waits"], 1)
    assert store.list_overviews(now=20.0, where=SweepFilter(text="waits"), page=Page(limit=1))[1] == 2


def test_whoever_asked_for_a_sweep_is_listed_once(store: Store) -> None:
    for owner in ("bob", "ada", "bob", ""):
        asked(store, owner)
    assert store.sweep_owners() == ["ada", "bob"]


@pytest.mark.parametrize(
    ("column", "descending"),
    [
        (SweepColumn.CREATED, ["empty", "b", "c", "A"]),
        (SweepColumn.NAME, ["empty", "c", "b", "A"]),
        (SweepColumn.MFU, ["b", "A", "c", "empty"]),
        (SweepColumn.TOKENS_PER_S, ["c", "A", "b", "empty"]),
        (SweepColumn.TRIALS, ["c", "A", "b", "empty"]),
        (SweepColumn.ACCELERATOR_HOURS, ["c", "A", "b", "empty"]),
    ],
)
def test_a_list_is_ordered_by_any_column_and_what_has_no_value_comes_last(
    store: Store, column: SweepColumn, descending: list[str]
) -> None:
    measured(store, "A", 0.2, 0.3, now=1.0)
    measured(store, "c", 0.1, 0.1, 0.2, now=2.0)
    measured(store, "b", 0.4, now=3.0)
    create(store, name="empty", now=4.0)
    assert names(store, order=SweepOrder(column=column)) == descending
    numbers = (SweepColumn.MFU, SweepColumn.TOKENS_PER_S)
    ascending = [*descending[-2::-1], "empty"] if column in numbers else descending[::-1]
    assert names(store, order=SweepOrder(column=column, is_descending=False)) == ascending


def test_equal_ones_come_newest_first(store: Store) -> None:
    for number in range(3):
        asked(store, "ada", name=str(number), now=float(number))
    for column in (SweepColumn.OWNER, SweepColumn.CLUSTER, SweepColumn.STATE, SweepColumn.TRIALS):
        assert names(store, order=SweepOrder(column=column)) == ["2", "1", "0"]
