"""Store contract: databases that are gone, busy or full."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import InternalError

from autotuner.core.cluster_check import CheckRequest
from autotuner.core.errors import InvalidInput, StoreUnavailable
from autotuner.core.health import Incident, IncidentKind
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Sweep
from autotuner.core.trial import Trial
from autotuner.core.upkeep import RegressionGateOutcome, Verdict
from autotuner.store.engine import make_engine
from autotuner.store.schema import head_revision, migrate
from autotuner.store.sql import Store, open_store
from tests.announcements import announce
from tests.builders import cpu_cluster, tiny_job
from tests.contracts.acts import add, claim, create, finish, held_sweep
from tests.contracts.upkeep import (
    announcement,
    asked_gate,
    gate_result,
    outcome,
    regression_gate_request,
    saved_retune,
    started_run,
    webhook,
)
from tests.runs import claimed, conclude_gate, conclude_retune, end

# ---------------------------------------------------------------- outages
NOBODY_LISTENS = "postgresql://nobody@127.0.0.1:1/nothing"  # port 1 is reserved (tcpmux)


def add_for_ever(store: Store, sweep: Sweep, stored: list[Trial]) -> None:
    for number in count():
        stored.append(add(store, sweep, number))  # what was stored before the refusal counts


def test_a_full_disk_is_unavailable_and_loses_nothing_that_was_stored(sqlite_url: str) -> None:
    engine = make_engine(sqlite_url)
    # SQLite's own bound on the file makes the very error that a full disk makes: SQLITE_FULL.
    with engine.connect() as connection:
        bound = 12 + connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    engine.dispose()
    event.listen(engine, "connect", lambda raw, _: raw.execute(f"PRAGMA max_page_count = {bound}").close())
    full = Store(engine)
    sweep = held_sweep(full)
    stored: list[Trial] = []
    with pytest.raises(StoreUnavailable, match="full"):
        add_for_ever(full, sweep, stored)
    assert len(stored) > 0
    assert full.list_trials(sweep.id)[1] == len(stored)
    full.close()
    with_room = open_store(sqlite_url)
    assert with_room.list_trials(sweep.id)[0] == stored[:50]
    assert add(with_room, sweep, len(stored)).number == len(stored)
    with_room.close()


@contextmanager
def no_room_on_disk() -> Iterator[None]:
    """Files of this process do not grow: a write fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_database_that_answers_and_takes_no_write_is_not_ready(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    assert store.check() == head_revision()
    with no_room_on_disk():
        assert store.runs.list("sweep") == ([], 0)
        with pytest.raises(StoreUnavailable, match="disk"):
            store.check()
    assert store.check() == head_revision()
    store.close()


def test_a_read_only_database_is_read_and_not_written(sqlite_url: str) -> None:
    writable = open_store(sqlite_url)
    sweep = create(writable)
    read_only = open_store(sqlite_url.replace("sqlite:///", "sqlite:///file:") + "?mode=ro&uri=true")
    assert read_only.get_sweep(sweep.id) == sweep
    with pytest.raises(StoreUnavailable, match="readonly"):
        create(read_only)
    assert writable.runs.list("sweep")[1] == 1
    read_only.close()
    writable.close()


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    store = open_store(NOBODY_LISTENS)
    for act in (store.check, lambda: store.runs.list("sweep"), lambda: create(store)):
        with pytest.raises(StoreUnavailable, match="port 1 "):
            act()
    with pytest.raises(StoreUnavailable, match="port 1 "):
        migrate(NOBODY_LISTENS)
    store.close()


def test_connections_that_the_server_dropped_are_replaced(postgresql_url: str) -> None:
    store, other = open_store(postgresql_url), make_engine(postgresql_url)
    sweep = create(store)
    with other.connect() as connection:
        everyone_else = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.execute(text(f"{everyone_else} AND datname = current_database()"))
    assert store.get_sweep(sweep.id) == sweep
    other.dispose()
    store.close()


def pid_of_connection(store: Store, other: Engine) -> int:
    """The server's process behind the store's one connection."""
    store.check()
    mine = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
    with other.connect() as connection:
        pid: int = connection.execute(text(f"{mine} AND backend_type = 'client backend'")).scalar_one()
    return pid


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Processes that do nothing until the end of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_connection_whose_server_process_freezes_is_replaced(postgresql_url: str) -> None:
    store, other = open_store(postgresql_url, answer_s=0.5), make_engine(postgresql_url)
    with frozen(pid_of_connection(store, other)):
        assert store.runs.list("sweep") == ([], 0)
    other.dispose()
    store.close()


def test_a_server_that_freezes_is_given_up_and_nobody_waits_for_it_until_it_answers_again(postgresql_url: str) -> None:
    store, other = open_store(postgresql_url, answer_s=0.5), make_engine(postgresql_url)
    pid = pid_of_connection(store, other)
    with frozen(pid, psutil.Process(pid).ppid()):
        with pytest.raises(StoreUnavailable, match="timeout"):
            store.runs.list("sweep")
        with pytest.raises(StoreUnavailable, match="a moment ago"):
            store.runs.list("sweep")
    while True:  # until it is asked again
        with contextlib.suppress(StoreUnavailable):
            assert store.runs.list("sweep") == ([], 0)
            break
        time.sleep(0.1)
    other.dispose()
    store.close()


def test_a_lock_that_nobody_gives_back_is_not_waited_for_without_end(postgresql_url: str) -> None:
    store, other = open_store(postgresql_url, answer_s=0.5), make_engine(postgresql_url)
    sweep = create(store)
    with other.begin() as connection:
        connection.execute(text("SELECT id FROM runs FOR UPDATE"))
        with pytest.raises(StoreUnavailable, match="timeout"):
            store.request_cancel(sweep.id, now=2.0)
    assert store.request_cancel(sweep.id, now=2.0).cancel_requested
    other.dispose()
    store.close()


def test_a_process_that_freezes_within_a_transaction_loses_it_to_those_who_wait(postgresql_url: str) -> None:
    store, holder = open_store(postgresql_url), make_engine(postgresql_url, answer_s=0.1)
    sweep = create(store)
    connection = holder.connect()
    connection.execute(text("SELECT id FROM runs FOR UPDATE"))
    assert store.request_cancel(sweep.id, now=2.0).cancel_requested  # waits until the other's time is up
    with pytest.raises(InternalError, match="idle-in-transaction"):
        connection.execute(text("SELECT 1"))
    connection.close()
    holder.dispose()
    store.close()


@pytest.mark.parametrize("act", ["deleted", "replaced"])
def test_a_file_that_is_deleted_or_replaced_under_a_store_is_refused_and_not_made_anew(
    sqlite_url: str, act: str
) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    store = open_store(sqlite_url)
    sweep = create(store)
    away = path.rename(path.with_suffix(".away"))
    if act == "replaced":
        shutil.copy(away, path)
    before = path.exists()
    for attempt in (store.check, lambda: store.runs.list("sweep"), lambda: create(store)):
        with pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
            attempt()
    with ThreadPoolExecutor(1) as pool, pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
        pool.submit(lambda: store.runs.list("sweep")).result()  # on a connection of its own
    assert path.exists() is before
    away.rename(path)
    assert store.get_sweep(sweep.id) == sweep
    store.close()


@pytest.mark.parametrize("kind", ["a folder", "another kind of file"])
def test_a_path_that_is_no_database_is_unavailable(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store.db"
    path.mkdir() if kind == "a folder" else path.write_text("no database " * 100)
    store = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreUnavailable):
        store.runs.list("sweep")
    store.close()


def test_a_path_below_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="folder"):
        open_store(f"sqlite:///{tmp_path}/file/store.db")


def test_a_database_that_was_never_migrated_is_unavailable_with_advice(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(StoreUnavailable, match="autotuner migrate"):
        store.check()
    with pytest.raises(StoreUnavailable):
        store.runs.list("sweep")
    store.close()


def test_a_database_at_an_older_revision_is_unavailable_with_both_named(database_url: str) -> None:
    engine = make_engine(database_url)
    store = Store(engine)
    at_head = store.check()
    with engine.begin() as connection:
        connection.execute(text("UPDATE autotuner_alembic_version SET version_num = '0001'"))
    with pytest.raises(StoreUnavailable, match=f"0001.*{at_head}"):
        store.check()
    with engine.begin() as connection:
        connection.execute(text("UPDATE autotuner_alembic_version SET version_num = :head"), {"head": at_head})
    store.close()


@pytest.mark.parametrize(
    "url", ["", "store.db", "mysql://host/name", "sqlite://", "sqlite:///:memory:", "postgres://host/name"]
)
def test_a_url_of_no_supported_database_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="sqlite:///"):
        open_store(url)


@pytest.mark.parametrize("url", ["mysql://user:secret@host/name", "user:secret@host/name"])
def test_a_refused_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)


def test_the_folders_of_an_sqlite_path_are_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/not/yet/there.db"
    migrate(url)
    store = open_store(url)
    assert store.runs.list("sweep") == ([], 0)
    store.close()


# ---------------------------------------------------------------- incidents
def told(store: Store, *, since: float = 0.0, **limits: Any) -> Sequence[tuple[IncidentKind, str]]:
    return [(one.kind, one.subject) for one in store.health.incidents(since=since, **limits)]


def failed(store: Store, *, now: float = 20.0, **changes: Any) -> Sweep:
    sweep = held_sweep(store, **changes)
    return finish(store, sweep, now=now, state=RunState.FAILED, reason=StopReason.CANNOT_RUN, detail="no node answers")


# ---------------------------------------------------------------------- retunes
def test_a_retune_is_reported_by_its_last_finished_run(store: Store) -> None:
    saved_retune(store)
    conclude_retune(store, started_run(store), outcome(), "lost 10 %", now=120.0)
    (incident,) = store.health.incidents(since=1e9)
    assert incident == Incident(
        kind=IncidentKind.REGRESSION, subject="nightly", name="nightly", detail="lost 10 %", at=120.0
    )
    next_night = started_run(store, expected_due_at=200.0, due_at=200.0, next_due_at=300.0, now=200.0)
    assert told(store) == [(IncidentKind.REGRESSION, "nightly")]
    conclude_retune(store, next_night, outcome(Verdict.UNCHANGED), now=220.0)
    assert told(store) == []


def test_a_retune_that_could_not_run_is_reported(store: Store) -> None:
    saved_retune(store)
    conclude_retune(store, started_run(store), outcome(Verdict.COULD_NOT_RUN), now=120.0)
    assert told(store) == [(IncidentKind.RETUNE_COULD_NOT_RUN, "nightly")]


# ---------------------------------------------------------------------- gates
@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        (RegressionGateOutcome.FAILED, IncidentKind.GATE_FAILED),
        (RegressionGateOutcome.UNDECIDED, IncidentKind.GATE_UNDECIDED),
        (RegressionGateOutcome.COULD_NOT_RUN, IncidentKind.GATE_COULD_NOT_RUN),
        (RegressionGateOutcome.PASSED, None),
        (RegressionGateOutcome.CANCELLED, None),
        (RegressionGateOutcome.NO_BASELINE, None),
    ],
)
def test_gates_that_let_nothing_pass_are_reported_for_a_time(
    store: Store, ended: RegressionGateOutcome, kind: IncidentKind | None
) -> None:
    gate = asked_gate(store, request=regression_gate_request(software="pull request 7"))
    conclude_gate(store, gate, gate_result(ended), "6 % slower", now=50.0)
    assert told(store, since=40.0) == ([(kind, gate.id)] if kind else [])
    assert told(store, since=60.0) == []
    for incident in store.health.incidents(since=0.0):
        assert (incident.name, incident.detail, incident.at) == ("pull request 7", "6 % slower", 50.0)


# ---------------------------------------------------------------------- sweeps
def test_a_sweep_that_failed_is_reported_until_a_later_one_measured_its_job(store: Store) -> None:
    sweep = failed(store)
    (incident,) = store.health.incidents(since=10.0)
    assert (incident.kind, incident.subject, incident.name) == (IncidentKind.SWEEP_FAILED, sweep.id, "tiny on cpu:2")
    assert (incident.detail, incident.at) == ("no node answers", 20.0)
    assert told(store, since=30.0) == []
    create(store, now=2.0, job=tiny_job(num_cores=4))
    finish(store, claim(store))
    assert told(store) == [(IncidentKind.SWEEP_FAILED, sweep.id)]  # that was another job
    create(store, now=3.0)
    finish(store, claim(store))
    assert told(store) == []


def test_the_sweep_of_a_gate_or_a_retune_is_no_trouble_of_its_own(store: Store) -> None:
    saved_retune(store)
    started_run(store)
    asked_gate(store)
    for _ in range(2):
        sweep = claim(store, now=110.0)
        finish(store, sweep, now=120.0, state=RunState.FAILED, reason=StopReason.ERROR)
    assert told(store) == []


# ---------------------------------------------------------------------- clusters
def test_a_cluster_is_reported_by_its_last_check_that_came_to_an_end(store: Store) -> None:
    store.descriptions.save(cpu_cluster(name="lab", engine="slurm"))

    def checked(state: RunState, at: float) -> None:
        store.descriptions.create_check("lab", CheckRequest(), now=at)
        end(store, claimed(store, "check", now=at), state, "node 7 refuses connections", now=at + 1)

    checked(RunState.FAILED, 10.0)
    checked(RunState.CANCELLED, 20.0)
    (incident,) = store.health.incidents(since=1e9)
    assert (incident.kind, incident.subject) == (IncidentKind.CHECK_FAILED, "lab")
    assert (incident.detail, incident.at) == ("node 7 refuses connections", 11.0)
    checked(RunState.COMPLETE, 30.0)
    assert told(store) == []


# ---------------------------------------------------------------------- webhooks
def test_deliveries_that_were_given_up_are_reported_by_webhook_until_they_are_sent_again(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number in range(3):
        announce(store.announcements, announcement(f"rt-{number}"))
        end(store, claimed(store, "delivery", now=30.0), RunState.FAILED, f"answered 50{number}", now=40.0 + number)
    (incident,) = store.health.incidents(since=20.0)
    assert (incident.kind, incident.subject, incident.count) == (IncidentKind.DELIVERIES_DEAD, "team", 3)
    assert (incident.detail, incident.at) == ("answered 502", 42.0)
    for delivery in store.announcements.deliveries()[0]:
        store.announcements.send_again(delivery.id, now=50.0)
    assert told(store) == []


def test_at_most_the_requested_number_of_each_kind_is_listed_newest_first(store: Store) -> None:
    sweeps = [failed(store, now=20.0 + number, seed=number) for number in range(3)]
    newest = sorted(sweeps, key=lambda sweep: (sweep.created_at, sweep.id))[-2:]
    assert {subject for _, subject in told(store, limit=2)} == {sweep.id for sweep in newest}
