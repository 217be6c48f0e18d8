"""One saved database per schema revision migrates to the newest, and everything in it is still there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

import migrations
from autotuner.domain.sweep import StopReason, SweepState
from autotuner.domain.trial import FailureKind, TrialState
from autotuner.ports import Store
from autotuner.store.engine import make_engine, writing
from autotuner.store.schema import head_revision, migrate
from autotuner.store.sql import open_store

SAVED = sorted((Path(__file__).parent / "revisions").glob("*.sql"))


@pytest.fixture(params=SAVED, ids=lambda path: path.stem)
def store(request: pytest.FixtureRequest, empty_url: str) -> Iterator[Store]:
    """The saved database, migrated."""
    engine = make_engine(empty_url)
    with writing(engine) as connection:
        for statement in request.param.read_text().strip().split(";\n"):
            connection.exec_driver_sql(statement)
    engine.dispose()
    migrate(empty_url)
    migrated = open_store(empty_url)
    yield migrated
    migrated.close()


def test_every_revision_has_a_saved_database() -> None:
    revisions = ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    assert [path.stem for path in SAVED] == sorted(script.revision for script in revisions)


def test_a_saved_database_reaches_the_newest_revision(store: Store) -> None:
    assert store.check() == head_revision()


def test_saved_sweeps_are_read(store: Store) -> None:
    (running, finished), total = store.list_sweeps()
    assert total == 2
    assert (running.id, running.state, running.owner) == ("sw-running000", SweepState.RUNNING, "worker-b")
    assert (finished.id, finished.state, finished.stop_reason) == (
        "sw-finished00",
        SweepState.COMPLETE,
        StopReason.TRIAL_BUDGET,
    )
    assert finished.request.name == "finished"
    assert finished.request.job.model.num_layers == 4


def test_saved_trials_are_read_and_ranked(store: Store) -> None:
    ranked, _ = store.ranking("sw-finished00")
    assert [trial.measurement.mfu for trial in ranked if trial.measurement] == [0.5, 0.25]
    assert ranked[0].layout.tensor_parallel_degree == 2
    failed = store.get_trial("sw-finished00-0002")
    assert failed.failure is not None
    assert (failed.state, failed.failure.kind, len(failed.steps)) == (TrialState.FAILED, FailureKind.OOM, 1)
    (step,) = store.get_trial("sw-running000-0000").steps
    assert math.isnan(step.loss)


def test_saved_events_and_descriptions_are_read(store: Store) -> None:
    events = store.events("sw-finished00")
    assert [event.sequence for event in events] == list(range(1, 13))
    assert (events[0].kind, events[-1].kind) == ("sweep.created", "sweep.finished")
    assert [model.name for model in store.list_models()] == ["tiny"]
    assert [cluster.name for cluster in store.list_clusters()] == ["cpu:2"]


def test_a_saved_key_still_finds_its_sweep(store: Store) -> None:
    request = store.get_sweep("sw-finished00").request
    sweep, created = store.create_sweep(request, now=300.0, idempotency_key="nightly 1")
    assert (sweep.id, created) == ("sw-finished00", False)


def test_a_worker_goes_on_with_a_saved_sweep(store: Store) -> None:
    sweep = store.claim_sweep(owner="worker-c", now=300.0, lease_s=30.0)
    assert sweep is not None
    assert sweep.id == "sw-running000"
    trial = store.start_trial("sw-running000-0000", owner="worker-c", now=301.0)
    assert trial.attempts == 2


def test_profiles_are_read_where_the_revision_had_them(store: Store, request: pytest.FixtureRequest) -> None:
    names = [profile.name for profile in store.list_profiles()]
    assert names == (["local"] if request.node.callspec.id >= "0003" else [])
