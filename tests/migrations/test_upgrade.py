"""An upgrade while sweeps run: the newer schema takes what the older release writes, and a newer worker goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, insert, select

from autotuner.domain.runs.sweep import SweepState
from autotuner.domain.runs.trial import TrialState
from autotuner.launch.fake import FakeLauncher
from autotuner.ports import Store
from autotuner.search.sweeps.worker import Worker
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.schema import VERSION_TABLE, migrate
from autotuner.store.sql import open_store
from tests.clocks import ManualClock
from tests.migrations.saved import load

OLDER = "0009"
"""What the last release before this one has."""


def fill(url: str) -> None:
    engine = make_engine(url)
    with writing(engine) as connection:
        load(connection, OLDER)
    engine.dispose()


@pytest.fixture
def upgraded(empty_url: str) -> Iterator[Store]:
    """A database of the older release, with a sweep whose trial ran when its worker went away."""
    fill(empty_url)
    migrate(empty_url)
    store = open_store(empty_url)
    yield store
    store.close()


def test_a_worker_sees_a_sweep_that_the_older_release_began_to_its_end(upgraded: Store) -> None:
    launcher, clock = FakeLauncher(), ManualClock(time=1000.0)
    worker = Worker(upgraded, launcher, clock, owner="newer", lease_s=15.0)
    while not upgraded.get_sweep("sw-running000").state.finished:
        worker.run_once()
        clock.sleep(1.0)
    sweep = upgraded.get_sweep("sw-running000")
    trials, _ = upgraded.list_trials(sweep.id)
    assert sweep.state is SweepState.COMPLETE, sweep.stop_detail
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    kinds = [event.kind for event in upgraded.events(sweep.id)]
    assert kinds[:3] == ["sweep.created", "sweep.started", "trial.started"]
    assert (kinds.count("sweep.resumed"), kinds.count("sweep.finished"), kinds[-1]) == (1, 1, "sweep.finished")


def test_what_the_older_release_still_writes_fits_the_newer_schema_and_is_read(empty_url: str, tmp_path: Path) -> None:
    older_url = f"sqlite:///{tmp_path}/older.db"
    fill(older_url)
    migrate(empty_url)
    older, newer, tables = make_engine(older_url), make_engine(empty_url), MetaData()
    with reading(older) as source, writing(newer) as target:
        tables.reflect(source)
        for table in tables.sorted_tables:
            rows = [dict(row) for row in source.execute(select(table)).mappings()]
            if rows and table.name != VERSION_TABLE:
                target.execute(insert(table), rows)  # with the columns that it knows
    store = open_store(empty_url)
    assert {sweep.id for sweep in store.list_sweeps()[0]} >= {"sw-running000", "sw-finished00", "sw-queued0000"}
    assert [event.sequence for event in store.events("sw-finished00")] == list(range(1, 13))
    assert store.get_sweep("sw-running000").created_by == ""
    store.close()
    older.dispose()
    newer.dispose()


def test_a_service_stays_ready_where_a_newer_release_has_migrated_its_database(empty_url: str) -> None:
    migrate(empty_url)
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    engine.dispose()
    store = open_store(empty_url)
    assert store.check() == "9999"
    store.close()


def test_a_worker_of_the_older_release_takes_nothing_that_a_newer_one_holds(upgraded: Store) -> None:
    sweep = upgraded.claim_sweep(owner="newer", now=1000.0, lease_s=15.0, lapsed=upgraded.held_sweeps())
    assert sweep is not None
    assert sweep.lease_until == 1015.0  # by which the older release judges
    assert upgraded.renew_lease(sweep.id, owner="newer", now=1010.0, lease_s=15.0).lease_until == 1025.0
