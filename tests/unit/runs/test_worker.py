"""Workers of durable runs, whatever the kind, and of gates; what they do again and again, and how they are seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from autotuner.core.announcement import AnnouncementKind, DeliveryProgress
from autotuner.core.errors import InvalidInput, StoreUnavailable
from autotuner.core.run import Finish, NewRun, Run, RunState
from autotuner.core.upkeep import GateRun, RegressionGateOutcome
from autotuner.runs.gate_run import gate_kind
from autotuner.runs.kind import Do, Kind, Later, OneAction, Step, Wait, Work
from autotuner.runs.lease import Hold
from autotuner.runs.worker import Heartbeats, Worker, forever
from autotuner.service.build import build
from autotuner.service.settings import Settings
from autotuner.store.engine import writing
from autotuner.store.health import Health
from autotuner.store.sql import Store, memory_store
from autotuner.store.tables import runs
from tests.announcements import announcement
from tests.clocks import ManualClock
from tests.contracts.upkeep import asked_gate, end_sweep
from tests.fake_launcher import FakeLauncher
from tests.patience import PATIENCE_S
from tests.runs import claimed

DONE = Finish(state=RunState.COMPLETE, detail="done")


@pytest.fixture
def store() -> Store:
    store = memory_store()
    new = NewRun(id="dl-1", kind="delivery", request=announcement(), progress=DeliveryProgress())
    store.runs.add(new, now=1.0)
    return store


def worker(
    store: Store,
    act: Callable[[Hold], Step],
    shutdown: threading.Event | None = None,
    clock: ManualClock | None = None,
    **action: Any,
) -> Worker:
    """One whose runs are one action each."""

    def begin(hold: Hold) -> Work:
        return Work(machine=OneAction(Do(action=None, **action)), perform=lambda _: act(hold))

    kind = Kind(name="delivery", begin=begin, span="delivery.post")
    stop = shutdown or threading.Event()
    return Worker(store.runs, {kind.name: kind}, clock or ManualClock(), owner="a", lease_s=15.0, shutdown=stop)


def run_of(store: Store) -> Run:
    return store.runs.get("delivery", "dl-1")


def test_the_next_step_is_the_one_that_an_action_returns(store: Store) -> None:
    clock = ManualClock()
    steps: list[Step] = [Later(at=clock.now() + 60, detail="busy"), DONE]
    patient = worker(store, lambda _: steps.pop(0), clock=clock)
    assert [patient.run_once(), patient.run_once()] == [True, False]
    assert run_of(store).detail == "busy"
    clock.time += 60
    assert [patient.run_once(), patient.run_once()] == [True, False]
    assert run_of(store).detail == "done"


def test_progress_is_stored_before_the_action_begins(store: Store) -> None:
    tried = DeliveryProgress(num_attempts=1)

    def act(_: Hold) -> Step:
        assert run_of(store).progress == tried
        return DONE

    worker(store, act, progress=tried).run_once()
    assert run_of(store).state is RunState.COMPLETE


def test_an_action_that_takes_long_renews_the_lease_tells_how_far_it_is_and_hears_that_it_shall_stop(
    store: Store,
) -> None:
    def act(hold: Hold) -> Step:
        hold.report(DeliveryProgress(num_attempts=5))
        waited = threading.Event()
        while run_of(store).progress != DeliveryProgress(num_attempts=5):
            waited.wait(0.05)
        lease = run_of(store).lease
        assert lease is not None
        assert lease.renewals > 1
        store.runs.cancel("delivery", "dl-1", "", now=2.0)
        while hold.stop() is None:
            waited.wait(0.05)
        hold.check()
        return DONE

    worker(store, act).run_once()
    assert (run_of(store).state, run_of(store).detail) == (RunState.CANCELLED, "cancelled by request")


def test_the_result_of_an_action_counts_even_if_a_stop_was_requested_meanwhile(store: Store) -> None:
    shutdown = threading.Event()

    def act(_: Hold) -> Step:
        shutdown.set()
        return DONE

    worker(store, act, shutdown).run_once()
    assert run_of(store).state is RunState.COMPLETE


@pytest.mark.parametrize("ends_jobs", [False, True])
def test_a_run_that_shall_end_begins_no_action_but_one_that_ends_its_jobs(store: Store, ends_jobs: bool) -> None:
    first = store.runs.claim(["delivery"], owner="b", now=2.0, lease_s=15.0)
    assert first is not None
    assert first.lease is not None
    store.runs.release(first.lease, now=2.0)
    store.runs.cancel("delivery", "dl-1", "", now=3.0)
    worker(store, lambda _: replace(DONE, state=RunState.CANCELLED), ends_jobs=ends_jobs).run_once()
    assert (run_of(store).state, run_of(store).detail) == (
        RunState.CANCELLED,
        "done" if ends_jobs else "cancelled by request",
    )


def test_an_error_is_kept_unless_the_worker_was_told_to_stop(store: Store) -> None:
    def act(_: Hold) -> Step:
        raise InvalidInput("size", 3, "must be even", 4)

    busy = worker(store, act)
    assert [busy.run_once(), busy.run_once()] == [True, False]
    run = run_of(store)
    assert run.problem is not None
    assert (run.state, run.problem.error, run.problem.state["nearest"]) == (RunState.FAILED, "InvalidInput", 4)


def test_an_error_while_the_worker_is_told_to_stop_gives_the_run_back(store: Store) -> None:
    shutdown = threading.Event()

    def act(_: Hold) -> Step:
        shutdown.set()
        raise ConnectionError("the pool is closed")

    worker(store, act, shutdown).run_once()
    assert (run_of(store).state, run_of(store).lease) == (RunState.RUNNING, None)


def test_a_worker_that_lost_its_run_writes_nothing_more(store: Store) -> None:
    lost = threading.Event()

    def act(hold: Hold) -> Step:
        seen = store.runs.leases(["delivery"])
        store.runs.claim(["delivery"], owner="thief", now=1e9, lease_s=15.0, lapsed=seen)
        while hold.stop() is None:
            lost.wait(0.05)
        return DONE

    thread = threading.Thread(target=worker(store, act).run_once)
    thread.start()
    thread.join(PATIENCE_S)
    run = run_of(store)
    assert run.lease is not None
    assert (run.state, run.lease.owner) == (RunState.RUNNING, "thief")


class Several:
    """A machine of actions of these names, as many of them at once as there is room for."""

    def __init__(self, *names: str) -> None:
        self.left = list(names)
        self.told: list[str] = []

    def next(self, now: float) -> Step:  # noqa: ARG002
        if self.left:
            return Do(action=self.left.pop(0))
        return DONE if len(self.told) == 3 else Wait()

    def tell(self, outcome: str) -> None:
        self.told.append(outcome)


def parallel(store: Store, act: Callable[[Hold, str], str]) -> Worker:
    """A worker whose runs are three actions, two of them at once."""

    def begin(hold: Hold) -> Work:
        return Work(machine=Several("a", "b", "c"), perform=lambda name: act(hold, name), num_parallel=2)

    kind = Kind(name="delivery", begin=begin, span="delivery.post")
    return Worker(store.runs, {kind.name: kind}, ManualClock(), owner="a", lease_s=15.0, shutdown=threading.Event())


def test_as_many_actions_run_at_once_as_the_kind_has_room_for(store: Store) -> None:
    both, num_running, most = threading.Barrier(2), [0], [0]

    def act(_: Hold, name: str) -> str:
        num_running[0] += 1
        most[0] = max(most[0], num_running[0])
        if name != "c":
            both.wait(PATIENCE_S)
        num_running[0] -= 1
        return name

    parallel(store, act).run_once()
    assert (run_of(store).state, most) == (RunState.COMPLETE, [2])


def test_an_error_of_one_action_ends_the_others_and_the_run(store: Store) -> None:
    ended = threading.Event()

    def act(hold: Hold, name: str) -> str:
        if name == "a":
            raise ZeroDivisionError("a bug")
        while hold.stop() is None:
            ended.wait(0.01)
        ended.set()
        return name

    parallel(store, act).run_once()
    assert ended.is_set()
    assert (run_of(store).state, run_of(store).detail) == (RunState.FAILED, "ZeroDivisionError: a bug")


def gate_worker(store: Store, clock: ManualClock, owner: str = "b") -> Worker:
    kind = gate_kind(store)
    return Worker(store.runs, {kind.name: kind}, clock, owner=owner, lease_s=10.0, shutdown=threading.Event())


def outcome_of(store: Store, gate: GateRun) -> RegressionGateOutcome | None:
    result = store.runs.get(GateRun, gate.id).result
    return None if result is None else result.outcome


def test_a_gate_waits_for_its_sweep_and_says_what_that_means() -> None:
    store = memory_store()
    gate = asked_gate(store)
    gates = gate_worker(store, ManualClock(130.0))
    assert not gates.run_once()
    end_sweep(store, gate.child_id)
    assert gates.run_once()
    assert outcome_of(store, gate) is RegressionGateOutcome.COULD_NOT_RUN  # nothing was measured
    assert [told.subject_id for told in store.announcements.feed()[0]] == [gate.id]


def test_a_gate_whose_worker_was_killed_is_decided_by_another() -> None:
    store = memory_store()
    gate = asked_gate(store)
    end_sweep(store, gate.child_id)
    claimed(store, "gate", owner="killed")
    clock = ManualClock(130.0)
    gates = gate_worker(store, clock)
    assert not gates.run_once()
    for _ in range(12):
        clock.sleep(1.0)
        gates.run_once()
    assert outcome_of(store, gate) is RegressionGateOutcome.COULD_NOT_RUN
    assert store.announcements.feed()[1] == 1


def test_a_gate_whose_sweep_cannot_be_read_could_not_run() -> None:
    store = memory_store()
    gate = asked_gate(store)
    with writing(store._engine) as connection:
        newer = '{"schema_version":1,"later":1}'
        connection.execute(update(runs).where(runs.c.id == gate.child_id).values(request=newer))
    store.runs.cancel("gate", gate.id, "", now=20.0)
    assert gate_worker(store, ManualClock(130.0)).run_once()
    assert outcome_of(store, gate) is RegressionGateOutcome.COULD_NOT_RUN
    assert [told.kind for told in store.announcements.feed()[0]] == [AnnouncementKind.GATE_COULD_NOT_RUN]


def test_a_step_that_raises_is_done_again_until_somebody_says_stop() -> None:
    done: list[str] = []
    shutdown = threading.Event()

    def steps() -> Iterator[object]:
        done.append("away")
        yield StoreUnavailable("no database")
        done.append("broken")
        yield ValueError("a bug")
        done.append("last")
        shutdown.set()
        yield True

    coming = steps()

    def step() -> bool:
        found = next(coming)
        if isinstance(found, Exception):
            raise found
        return True

    forever(step, poll_s=0.0, shutdown=shutdown, name="test")
    assert done == ["away", "broken", "last"]


def test_while_there_is_something_to_do_nothing_waits() -> None:
    shutdown = threading.Event()
    left = [False, True, True]

    def step() -> bool:
        if len(left) == 1:
            shutdown.set()
        return left.pop()

    forever(step, poll_s=3600.0, shutdown=shutdown, name="test")  # the last wait is ended by the stop
    assert not left


def test_a_worker_is_seen_while_it_runs_and_gone_when_it_was_stopped() -> None:
    store = memory_store()
    app = build(Settings(), store=store, launcher=FakeLauncher())
    app.background.start()
    while not store.health.workers():
        time.sleep(0.01)
    app.background.stop()
    assert store.health.workers() == []
    app.close()


def test_each_sign_of_life_is_of_its_time_and_the_start_stays() -> None:
    store, clock = memory_store(), ManualClock()
    heartbeats = Heartbeats(store.health, clock, name="worker-a")
    for seconds in (5.0, 10.0):
        clock.sleep(seconds)
        heartbeats.tell()
    (seen,) = store.health.workers()
    assert (seen.name, seen.started_at, seen.seen_at) == ("worker-a", 1000.0, 1015.0)


def test_a_worker_stops_though_the_store_is_away() -> None:
    class Away(Health):
        def forget(self, name: str) -> None:
            raise StoreUnavailable(f"nobody forgets {name}")

    store = memory_store()
    store.health = Away(store._engine, store.runs)
    Heartbeats(store.health, ManualClock(), name="worker-a").end()
