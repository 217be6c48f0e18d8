"""Store contract: retunes and their runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from autotuner.core.announcement import AnnouncementKind
from autotuner.core.errors import Conflict, InvalidInput, NotFound
from autotuner.core.run import RunState
from autotuner.core.upkeep import Retune, RetuneRun, Trigger, Verdict
from autotuner.store.engine import make_engine
from autotuner.store.options import Page
from autotuner.store.sql import Store, open_store
from tests.announcements import announce
from tests.builders import cpu_layout
from tests.contracts.crowd import in_processes, in_threads
from tests.contracts.upkeep import (
    DUE_AT,
    NEXT_DUE_AT,
    announcement,
    challenge_request,
    end_sweep,
    outcome,
    retune_request,
    run_group,
    saved_retune,
    start_run,
    started_run,
)
from tests.runs import claimed, conclude_retune, end, end_retune

NUM_THREADS = 8
FASTER = cpu_layout(micro_batch_size=2)


# ---------------------------------------------------------------------- retunes
def test_a_saved_retune_is_read_as_it_was_asked(store: Store) -> None:
    request = retune_request(incumbent=cpu_layout(), on_new_environment=True)
    saved = store.retunes.save(request, now=1.0, next_due_at=DUE_AT)
    assert saved == Retune(request=request, created_at=1.0, incumbent=cpu_layout(), next_due_at=DUE_AT)
    assert store.retunes.get("nightly") == saved


def test_a_name_is_given_once(store: Store) -> None:
    saved_retune(store)
    with pytest.raises(Conflict, match="nightly"):
        saved_retune(store)
    with pytest.raises(InvalidInput, match="printable"):
        saved_retune(store, "")


def test_retunes_are_listed_by_name(store: Store) -> None:
    saved = [saved_retune(store, name) for name in ("b", "a", "C")]
    assert store.retunes.list() == [saved[2], saved[1], saved[0]]


def test_a_retune_that_is_not_stored_is_missing_and_the_nearest_named(store: Store) -> None:
    saved_retune(store)
    for act in (
        lambda: store.retunes.get("nightlt"),
        lambda: store.retunes.set_paused("nightlt", True, next_due_at=None),
        lambda: store.retunes.set_incumbent("nightlt", cpu_layout(), ()),
        lambda: store.retunes.remove("nightlt"),
        lambda: store.retunes.runs("nightlt"),
    ):
        with pytest.raises(NotFound) as missing:
            act()
        assert missing.value.nearest == "nightly"


def test_a_paused_retune_is_not_due_until_it_goes_on(store: Store) -> None:
    saved_retune(store)
    paused = store.retunes.set_paused("nightly", True, next_due_at=DUE_AT)
    assert (paused.is_paused, paused.next_due_at) == (True, None)
    assert store.retunes.due(1000.0) == []
    resumed = store.retunes.set_paused("nightly", False, next_due_at=300.0)
    assert (resumed.is_paused, resumed.next_due_at) == (False, 300.0)
    assert store.retunes.due(300.0) == [resumed]


def test_an_adopted_layout_takes_its_baseline_along(store: Store) -> None:
    saved_retune(store)
    groups = (run_group(1100.0), run_group(1110.0, at=60.0))
    adopted = store.retunes.set_incumbent("nightly", FASTER, groups)
    assert (adopted.incumbent, adopted.baseline) == (FASTER, groups)
    assert replace(store.retunes.get("nightly"), last_run=adopted.last_run) == adopted


def test_due_retunes_come_in_the_order_of_their_due_times(store: Store) -> None:
    for name, due_at in (("late", 100.0), ("later", 101.0), ("early", 50.0), ("never", None)):
        saved_retune(store, name, due_at=due_at)
    assert [retune.name for retune in store.retunes.due(100.0)] == ["early", "late"]
    assert store.retunes.due(49.0) == []


# ---------------------------------------------------------------------- starting
def test_a_run_starts_with_its_queued_sweep_and_the_next_due_time(store: Store) -> None:
    saved_retune(store)
    run = started_run(store, trigger=Trigger.CAUGHT_UP, num_missed=3)
    assert (run.subject, run.request.due_at, run.request.trigger, run.request.num_missed) == (
        "nightly",
        DUE_AT,
        Trigger.CAUGHT_UP,
        3,
    )
    assert (run.word, run.request.started_at, run.finished_at) == ("running", 101.0, None)
    assert run.child_id is not None
    sweep = store.get_sweep(run.child_id)
    assert (sweep.state, sweep.request, sweep.created_at) == (RunState.QUEUED, challenge_request(), 101.0)
    assert store.events(sweep.id)[0].kind == "sweep.created"
    assert store.retunes.get("nightly").next_due_at == NEXT_DUE_AT
    assert store.runs.get(RetuneRun, run.id) == store.retunes.unfinished_run("nightly") == run


def test_a_due_time_that_somebody_else_started_is_not_started_again(store: Store) -> None:
    saved_retune(store)
    started_run(store)
    assert start_run(store) is None
    assert store.runs.list("sweep")[1] == 1


def test_a_due_time_has_one_run_even_if_the_retune_is_due_then_again(store: Store) -> None:
    saved_retune(store)
    run = started_run(store, next_due_at=DUE_AT)
    conclude_retune(store, run, outcome(), now=130.0)
    assert start_run(store) is None
    assert store.retunes.runs("nightly")[1] == 1


def test_a_run_is_not_started_beside_one_that_is_unfinished(store: Store) -> None:
    saved_retune(store)
    run = started_run(store)
    assert start_run(store, expected_due_at=NEXT_DUE_AT, due_at=NEXT_DUE_AT, next_due_at=300.0) is None
    assert store.retunes.get("nightly").next_due_at == NEXT_DUE_AT
    assert store.retunes.runs("nightly") == ([run], 1)


def test_a_due_time_beside_an_unfinished_run_is_skipped_and_over(store: Store) -> None:
    saved_retune(store)
    first = started_run(store)
    skipped = started_run(
        store,
        expected_due_at=NEXT_DUE_AT,
        due_at=NEXT_DUE_AT,
        next_due_at=300.0,
        now=201.0,
        sweep=None,
        skipped=True,
    )
    assert (skipped.word, skipped.finished_at, skipped.child_id) == ("skipped", 201.0, None)
    assert store.retunes.get("nightly").next_due_at == 300.0
    assert store.retunes.unfinished_run("nightly") == first
    assert store.retunes.runs("nightly") == ([skipped, first], 2)


def test_nothing_is_skipped_where_no_run_is_unfinished(store: Store) -> None:
    saved_retune(store)
    assert start_run(store, sweep=None, skipped=True) is None
    assert store.retunes.due(DUE_AT) == [store.retunes.get("nightly")]


def test_a_paused_or_removed_retune_starts_nothing(store: Store) -> None:
    saved_retune(store)
    store.retunes.set_paused("nightly", True, next_due_at=None)
    assert start_run(store) is None
    store.retunes.remove("nightly")
    assert start_run(store) is None
    assert store.runs.list("sweep")[1] == 0


def test_a_run_out_of_turn_leaves_the_due_time_as_it_is(store: Store) -> None:
    saved_retune(store)
    started_run(store, due_at=42.0, next_due_at=DUE_AT, trigger=Trigger.MANUAL)
    assert store.retunes.get("nightly").next_due_at == DUE_AT
    saved_retune(store, "paused", due_at=None)
    started_run(store, "paused", expected_due_at=None, due_at=42.0, next_due_at=None, trigger=Trigger.MANUAL)
    assert store.retunes.get("paused").next_due_at is None


def test_one_of_many_threads_starts_a_due_run(store: Store) -> None:
    saved_retune(store)
    runs = in_threads(NUM_THREADS, lambda _: start_run(store))
    assert len([run for run in runs if run]) == 1
    assert store.runs.list("sweep")[1] == 1


def open_and_start_all(url: str, owner: str) -> list[str]:
    """Start all that is due at once, as a scheduler in a process of its own does."""
    store = open_store(url)
    try:
        runs = [start_run(store, retune.name) for retune in store.retunes.due(DUE_AT)]
        return [f"{owner} {run.subject}" for run in runs if run]
    finally:
        store.close()


def test_one_of_many_processes_starts_each_due_run(database_url: str) -> None:
    store = open_store(database_url)
    names = [saved_retune(store, f"retune {number}").name for number in range(12)]
    started = [said.partition(" ")[2] for mine in in_processes(2, open_and_start_all, database_url) for said in mine]
    assert sorted(started) == sorted(names)
    assert store.runs.list("sweep")[1] == 12
    store.close()


# ---------------------------------------------------------------------- how they end
def test_a_run_is_taken_once_its_sweep_has_ended(store: Store) -> None:
    saved_retune(store)
    run = started_run(store)
    assert store.runs.claim(["retune"], owner="a", now=1e6, lease_s=10.0) is None
    end_sweep(store, run.child_id)
    assert claimed(store, "retune", now=130.0).id == run.id
    assert store.announcements.feed()[1] == 0


def test_a_run_without_a_sweep_is_taken_at_once(store: Store) -> None:
    saved_retune(store)
    run = started_run(store, sweep=None)
    assert claimed(store, "retune", now=0.0).id == run.id


def test_a_run_has_its_outcome_and_its_retune_a_longer_baseline(store: Store) -> None:
    saved_retune(store)
    run, found = started_run(store), outcome(Verdict.UNCHANGED)
    ended = conclude_retune(store, run, found, now=130.0)
    assert (ended.state, ended.finished_at, ended.result) == (RunState.COMPLETE, 130.0, found)
    retune = store.retunes.get("nightly")
    assert (retune.incumbent, retune.baseline) == (cpu_layout(), (run_group(),))
    assert store.retunes.unfinished_run("nightly") is None
    assert [told.subject_id for told in store.announcements.feed()[0]] == [run.id]


def test_a_regression_changes_nothing(store: Store) -> None:
    before = saved_retune(store, incumbent=cpu_layout())
    conclude_retune(store, started_run(store, next_due_at=DUE_AT), outcome(), now=130.0)
    assert replace(store.retunes.get("nightly"), last_run=None) == before


def test_a_layout_that_is_adopted_while_its_run_goes_on_is_not_overwritten(store: Store) -> None:
    saved_retune(store, incumbent=cpu_layout())
    run = started_run(store)
    adopted = store.retunes.set_incumbent("nightly", FASTER, ())
    conclude_retune(store, run, outcome(Verdict.UNCHANGED), now=130.0)
    assert replace(store.retunes.get("nightly"), last_run=adopted.last_run) == adopted


def test_a_run_that_an_error_ended_could_not_run(store: Store) -> None:
    saved_retune(store)
    run = started_run(store)
    end_sweep(store, run.child_id)
    end(store, claimed(store, "retune", now=130.0), RunState.FAILED, "KeyError: 7")
    ended = store.runs.get(RetuneRun, run.id)
    assert ended.result is not None
    assert (ended.result.verdict, ended.detail) == (Verdict.COULD_NOT_RUN, "KeyError: 7")
    assert [told.kind for told in store.announcements.feed()[0]] == [AnnouncementKind.RETUNE_COULD_NOT_RUN]


def test_an_end_whose_announcement_fails_changes_nothing(store: Store) -> None:
    saved_retune(store)
    run = started_run(store)
    announce(store.announcements, announcement(run.id))
    with pytest.raises(Conflict, match=run.id):
        conclude_retune(store, run, outcome(Verdict.UNCHANGED), now=130.0)
    assert store.runs.get(RetuneRun, run.id).result is None
    assert store.retunes.get("nightly").baseline == ()


def test_a_run_that_is_not_stored_is_missing(store: Store) -> None:
    with pytest.raises(NotFound, match="rt-none"):
        store.runs.get(RetuneRun, "rt-none")


# ---------------------------------------------------------------------- history and removal
def test_the_history_is_read_newest_first_in_pages(store: Store) -> None:
    saved_retune(store)
    for due_at in (100.0, 200.0, 300.0):
        run = started_run(store, expected_due_at=due_at, due_at=due_at, next_due_at=due_at + 100)
        conclude_retune(store, run, outcome(), now=due_at + 1)
    found, total = store.retunes.runs("nightly", page=Page(limit=2))
    assert ([run.request.due_at for run in found], total) == ([300.0, 200.0], 3)
    assert [run.request.due_at for run in store.retunes.runs("nightly", page=Page(offset=2))[0]] == [100.0]


def test_a_removed_retune_takes_its_runs_along_and_leaves_their_sweeps(store: Store) -> None:
    saved_retune(store)
    run = started_run(store)
    with pytest.raises(Conflict, match=run.id):
        store.retunes.remove("nightly")
    sweep = end_sweep(store, run.child_id)
    end_retune(store, run, outcome(), now=130.0)
    store.retunes.remove("nightly")
    assert store.retunes.list() == []
    assert store.get_sweep(sweep.id) == sweep
    with pytest.raises(NotFound):
        store.runs.get(RetuneRun, run.id)
    saved_retune(store)  # the name is free
    started_run(store)


# ---------------------------------------------------------------------- records of other releases
@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url)
    yield made
    made.dispose()


def overwrite(engine: Engine, table: str, column: str, key: str, value: str | None) -> None:
    """Store what a newer release would."""
    newer = '{"schema_version": 1, "what_a_newer_release_asks": true}'
    statement = f"UPDATE {table} SET {column} = :newer WHERE {key} = :value"
    with engine.begin() as connection:
        connection.execute(text(statement), {"newer": newer, "value": value})


def test_a_retune_that_cannot_be_read_keeps_no_other_from_being_listed_or_due(engine: Engine) -> None:
    store = Store(engine)
    saved_retune(store, "newer")
    other = saved_retune(store, "other")
    overwrite(engine, "retunes", "request", "name", "newer")
    assert store.retunes.list() == store.retunes.due(DUE_AT) == [other]


def test_a_run_that_cannot_be_read_could_not_run_and_keeps_no_other_from_its_end(engine: Engine) -> None:
    store = Store(engine)
    for name in ("newer", "other"):
        saved_retune(store, name)
    unreadable, other = started_run(store, "newer"), started_run(store, "other", due_at=DUE_AT + 1, now=102.0)
    for run in (unreadable, other):
        end_sweep(store, run.child_id)
    overwrite(engine, "runs", "request", "id", unreadable.id)
    assert claimed(store, "retune", now=130.0).id == other.id
    (told,), _ = store.announcements.feed()
    assert (told.subject_id, told.kind) == (unreadable.id, AnnouncementKind.RETUNE_COULD_NOT_RUN)
