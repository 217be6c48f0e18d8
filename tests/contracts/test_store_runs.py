"""Store contract: runs of every kind, who works on them, and what waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from autotuner.core.announcement import DeliveryProgress
from autotuner.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, Unreadable
from autotuner.core.health import KnownWorker
from autotuner.core.run import Finish, NewRun, Problem, Run, RunState, Stop, Wish
from autotuner.core.trial import TrialState
from autotuner.search.planning.plan import PlanProgress
from autotuner.store.engine import writing
from autotuner.store.options import Page
from autotuner.store.sql import Store
from autotuner.store.tables import runs
from tests.announcements import announce
from tests.builders import failure
from tests.contracts.acts import add, create, finish, held_sweep, measure, start
from tests.contracts.acts import end as end_trial
from tests.contracts.crowd import in_threads
from tests.contracts.upkeep import announcement, webhook
from tests.runs import claimed, end, give_up_delivery, lease_of
from tests.unit.search.planning.requests import request_of

# ---------------------------------------------------------------- runs
NUM_THREADS = 8

KINDS = ["delivery"]


def new(run_id: str = "dl-1", **changes: Any) -> NewRun:
    request, progress = announcement(), DeliveryProgress()
    return replace(NewRun(id=run_id, kind="delivery", request=request, progress=progress, subject="team"), **changes)


def queued(store: Store, run_id: str = "dl-1", *, now: float = 20.0, **changes: Any) -> Run:
    run: Run
    run, is_new = store.runs.add(new(run_id, **changes), now=now)
    assert is_new
    return run


def claim(store: Store, *, now: float = 1e6, owner: str = "other", **keywords: Any) -> Run | None:
    found: Run | None = store.runs.claim(KINDS, owner=owner, now=now, lease_s=10.0, **keywords)
    return found


# ---------------------------------------------------------------------- callers
def test_a_run_is_queued_once_and_found_by_its_kind(store: Store) -> None:
    run = queued(store, created_by="mia")
    assert (run.state, run.created_by, run.created_at, run.due_at) == (RunState.QUEUED, "mia", 20.0, 20.0)
    assert (run.request, run.progress, run.result, run.lease) == (announcement(), DeliveryProgress(), None, None)
    assert store.runs.add(new(), now=30.0) == (run, False)
    assert store.runs.get("delivery", "dl-1") == run
    for kind, run_id in (("plan", "dl-1"), ("delivery", "dl-2")):
        with pytest.raises(NotFound):
            store.runs.get(kind, run_id)


def test_a_lease_is_not_taken_over_where_the_store_let_nobody_write_for_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(store)
    held = lease_of(claimed(store, "delivery"))
    clock = iter([0.0, held.lease_s, 0.0, 0.0])
    monkeypatch.setattr("autotuner.store.runs.monotonic", lambda: next(clock))
    assert claim(store, lapsed=[held]) is None
    assert claim(store, lapsed=[held]) is not None


def test_many_who_ask_for_one_run_get_the_same(store: Store) -> None:
    asked = in_threads(NUM_THREADS, lambda _: store.runs.add(new(), now=20.0))
    assert sorted(is_new for _, is_new in asked) == [False] * (NUM_THREADS - 1) + [True]
    assert len({run.id for run, _ in asked}) == 1


def test_runs_are_listed_newest_first_by_subject_and_state(store: Store) -> None:
    for number, subject in enumerate(("a", "b", "a")):
        queued(store, f"dl-{number}", now=20.0 + number, subject=subject)
    end(store, claimed(store, "delivery"), RunState.FAILED)

    def listed(**which: Any) -> list[str]:
        found, total = store.runs.list("delivery", **which)
        assert total == len(found)
        return [run.id for run in found]

    assert listed() == ["dl-2", "dl-1", "dl-0"]
    assert listed(subject="a") == ["dl-2", "dl-0"]
    assert listed(states=[RunState.FAILED]) == listed(subject="a", states=[RunState.FAILED]) == ["dl-0"]
    assert [run.id for run in store.runs.list("delivery", page=Page(limit=1, offset=1))[0]] == ["dl-1"]
    assert store.runs.list("plan") == ([], 0)


def test_a_finished_run_is_queued_again_from_the_start(store: Store) -> None:
    queued(store)
    with pytest.raises(Conflict, match="cannot be started again before it ends"):
        store.runs.reopen("delivery", "dl-1", DeliveryProgress(), now=30.0)
    run = claimed(store, "delivery")
    store.runs.renew(lease_of(run), DeliveryProgress(num_attempts=8), now=23.0)
    end(store, run, RunState.FAILED, "503")
    again = store.runs.reopen("delivery", "dl-1", DeliveryProgress(), now=40.0)
    assert (again.state, again.progress, again.due_at) == (RunState.QUEUED, DeliveryProgress(), 40.0)
    assert (again.finished_at, again.created_at) == (None, 20.0)
    assert claimed(store, "delivery", now=41.0).id == "dl-1"
    with pytest.raises(NotFound):
        store.runs.reopen("delivery", "none", None, now=40.0)


# ---------------------------------------------------------------------- workers
def test_a_run_is_claimed_when_it_is_due_and_by_one_worker(store: Store) -> None:
    queued(store, due_at=25.0)
    assert claim(store, now=24.0) is None
    assert store.runs.claim(["plan"], owner="a", now=25.0, lease_s=10.0) is None
    run = claimed(store, "delivery", now=25.0, owner="a")
    assert (run.state, run.started_at, lease_of(run).owner, lease_of(run).claim) == (RunState.RUNNING, 25.0, "a", 1)
    assert claim(store) is None
    assert store.runs.leases(KINDS) == [lease_of(run)]
    assert store.runs.leases(["plan"]) == []


def test_the_run_that_is_due_longest_comes_first(store: Store) -> None:
    for number, due_at in enumerate((12.0, 10.0, 11.0)):
        queued(store, f"dl-{number}", due_at=due_at)
    assert [claimed(store, "delivery").id for _ in range(3)] == ["dl-1", "dl-2", "dl-0"]


def test_each_run_is_claimed_by_one_thread(store: Store) -> None:
    for number in range(12):
        queued(store, f"dl-{number}")

    def claim_all(thread: int) -> list[str]:
        return [run.id for run in iter(lambda: claim(store, owner=f"w{thread}"), None)]

    every = [run_id for mine in in_threads(NUM_THREADS, claim_all) for run_id in mine]
    assert len(every) == len(set(every)) == 12


def test_a_run_whose_worker_fell_silent_is_claimed_again_and_the_first_writes_nothing_more(store: Store) -> None:
    queued(store)
    first = claimed(store, "delivery", owner="a")
    seen = store.runs.leases(KINDS)
    second = claim(store, owner="a", lapsed=seen)  # of the same name: the claim tells them apart
    assert second is not None
    assert (lease_of(second).claim, second.started_at) == (2, first.started_at)
    assert claim(store, lapsed=seen) is None
    for write in (
        lambda: store.runs.renew(lease_of(first), DeliveryProgress(num_attempts=7), now=23.0),
        lambda: store.runs.release(lease_of(first), now=30.0),
        lambda: end(store, first, RunState.COMPLETE),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert store.runs.get("delivery", "dl-1") == second


def test_a_sign_of_life_keeps_a_run_and_stores_how_far_it_is(store: Store) -> None:
    queued(store)
    run = claimed(store, "delivery")
    seen = store.runs.leases(KINDS)
    store.runs.renew(lease_of(run), DeliveryProgress(num_attempts=1), now=23.0)
    renewed = store.runs.get("delivery", "dl-1")
    assert (renewed.progress, lease_of(renewed).renewals) == (DeliveryProgress(num_attempts=1), 2)
    assert store.runs.renew(lease_of(run), now=23.0) == Wish(wanted=None, num_changes=0)
    assert store.runs.get("delivery", "dl-1").progress == DeliveryProgress(num_attempts=1)
    store.runs.cancel("delivery", "dl-1", "", now=23.0)
    assert store.runs.renew(lease_of(run), now=23.0).wanted is Stop.CANCEL
    assert claim(store, lapsed=seen) is None


def test_a_run_that_is_put_off_is_claimed_later_and_one_that_is_given_back_at_once(store: Store) -> None:
    queued(store)
    run = claimed(store, "delivery")
    store.runs.release(lease_of(run), now=22.0, due_at=60.0, detail="503 busy")
    waits = store.runs.get("delivery", "dl-1")
    assert (waits.state, waits.due_at, waits.detail, waits.lease) == (RunState.RUNNING, 60.0, "503 busy", None)
    assert store.runs.leases(KINDS) == []
    assert claim(store, now=59.0) is None
    store.runs.release(lease_of(claimed(store, "delivery", now=60.0)), now=61.0)
    assert claimed(store, "delivery", now=61.0).detail == "503 busy"


def test_a_run_that_was_put_off_is_cancelled_without_waiting_for_its_time(store: Store) -> None:
    queued(store)
    store.runs.release(lease_of(claimed(store, "delivery")), now=22.0, due_at=1e9)
    assert store.runs.cancel("delivery", "dl-1", "", now=30.0).wanted is Stop.CANCEL
    assert claimed(store, "delivery", now=30.0).wanted is Stop.CANCEL


def test_a_finished_run_belongs_to_nobody(store: Store) -> None:
    queued(store)
    run = claimed(store, "delivery")
    end(store, run, RunState.COMPLETE, "200")
    done = store.runs.get("delivery", "dl-1")
    assert (done.state, done.finished_at, done.detail, done.lease) == (RunState.COMPLETE, 22.0, "200", None)
    assert claim(store) is None
    with pytest.raises(LeaseLost):
        end(store, run, RunState.FAILED)


def test_the_error_that_ended_a_run_comes_back_as_it_was(store: Store) -> None:
    queued(store)
    error = InvalidInput("space.tensor", (7, float("inf")), "must divide 64", 8)
    finish = Finish(state=RunState.FAILED, detail=str(error), problem=Problem.of(error))
    store.runs.finish(lease_of(claimed(store, "delivery")), finish, now=22.0)
    problem = store.runs.get("delivery", "dl-1").problem
    assert problem is not None
    again = problem.as_error()
    assert isinstance(again, InvalidInput)
    assert (str(again), again.field, again.rule, again.nearest) == (str(error), error.field, error.rule, 8)


def test_a_run_that_another_release_wrote_fails_and_holds_up_no_other(store: Store) -> None:
    queued(store, "dl-1", due_at=1.0)
    queued(store, "dl-2", due_at=2.0)
    with writing(store._engine) as connection:  # no method writes what cannot be read
        connection.execute(update(runs).where(runs.c.id == "dl-1").values(request='{"schema_version":1,"later":1}'))
    assert claimed(store, "delivery").id == "dl-2"
    with pytest.raises(Unreadable):
        store.runs.get("delivery", "dl-1")
    assert claim(store) is None


def test_old_plans_are_removed(store: Store) -> None:
    request = request_of(accelerators=("h100",), sizes=(16,))
    for run_id, at in (("old", 1.0), ("young", 50.0)):
        store.runs.add(NewRun(id=run_id, kind="plan", request=request, progress=PlanProgress()), now=at)
    assert [store.retention.prune_plans(before=50.0) for _ in range(2)] == [1, 0]
    assert [run.id for run in store.runs.list("plan")[0]] == ["young"]


def test_a_run_of_a_kind_that_has_no_pauses_is_not_paused(store: Store) -> None:
    queued(store)
    with pytest.raises(Conflict, match="cannot be paused"):
        store.runs.pause("delivery", "dl-1", now=30.0)
    assert store.runs.get("delivery", "dl-1").state is RunState.QUEUED


# ---------------------------------------------------------------------- runs that await others
def awaiting(store: Store, parent_id: str = "dl-1", child_id: str = "dl-2") -> None:
    """Queue a run, and one that awaits it."""
    queued(store, child_id, parent_id=parent_id)
    queued(store, parent_id, now=10.0, awaits=child_id)


def test_a_run_that_awaits_another_is_taken_once_that_has_ended(store: Store) -> None:
    awaiting(store)
    child = claimed(store, "delivery")
    assert (child.id, claim(store)) == ("dl-2", None)
    end(store, child, RunState.FAILED)
    assert claimed(store, "delivery").id == "dl-1"
    assert store.runs.get("delivery", "dl-1").awaits is None


def test_a_run_is_freed_by_the_end_of_the_one_that_it_awaits_and_of_no_other(store: Store) -> None:
    awaiting(store)
    queued(store, "dl-3", parent_id="dl-1", due_at=1.0)
    end(store, claimed(store, "delivery"), RunState.COMPLETE)
    assert store.runs.get("delivery", "dl-3").state is RunState.COMPLETE
    assert store.runs.get("delivery", "dl-1").awaits == "dl-2"


def test_many_workers_end_what_is_awaited_and_take_what_awaits_it_once(store: Store) -> None:
    for number in range(6):
        awaiting(store, f"dl-{number}", f"child-{number}")

    def work(thread: int) -> list[str]:
        mine = []
        for _ in range(100):
            if (run := claim(store, owner=f"w{thread}")) is not None:
                mine.append(run.id)
                end(store, run, RunState.COMPLETE)
        return mine

    every = [run_id for mine in in_threads(NUM_THREADS, work) for run_id in mine]
    assert len(every) == len(set(every)) == 12


def test_a_cancel_is_passed_down_to_what_the_run_awaits(store: Store) -> None:
    awaiting(store)
    waits = store.runs.cancel("delivery", "dl-1", "cancelled", now=30.0)
    assert store.runs.get("delivery", "dl-2").state is RunState.CANCELLED
    assert (waits.state, waits.awaits, waits.wanted) == (RunState.QUEUED, None, None)
    assert store.runs.cancel("delivery", "dl-1", "cancelled", now=31.0).state is RunState.CANCELLED


def test_a_cancel_is_heard_by_the_worker_of_what_the_run_awaits(store: Store) -> None:
    awaiting(store)
    child = claimed(store, "delivery")
    assert store.runs.cancel("delivery", "dl-1", "cancelled", now=30.0).awaits == "dl-2"
    assert store.runs.renew(lease_of(child), now=31.0).wanted is Stop.CANCEL
    assert store.runs.get("delivery", "dl-1").wanted is None


def test_ends_and_cancels_at_once_lock_each_other_out_of_nothing(store: Store) -> None:
    for number in range(8):
        awaiting(store, f"dl-{number}", f"child-{number}")
    held = [claimed(store, "delivery") for _ in range(8)]

    def end_or_cancel(thread: int) -> None:
        number, is_cancel = divmod(thread, 2)
        if is_cancel:
            store.runs.cancel("delivery", f"dl-{number}", "cancelled", now=30.0)
        else:
            end(store, held[number], RunState.COMPLETE)

    in_threads(16, end_or_cancel)
    assert all(store.runs.get("delivery", f"dl-{number}").awaits is None for number in range(8))


# ---------------------------------------------------------------- workers
WORKER = KnownWorker(name="worker-a", version="0.9.0", started_at=10.0, seen_at=20.0)


def test_a_new_report_of_a_worker_replaces_the_previous_one(store: Store) -> None:
    other = replace(WORKER, name="worker-b", seen_at=25.0)
    for told in (WORKER, other, replace(WORKER, seen_at=30.0)):
        store.health.tell(told)
    assert store.health.workers() == [replace(WORKER, seen_at=30.0), other]


def test_a_worker_that_stopped_is_forgotten_as_often_as_it_says_so(store: Store) -> None:
    store.health.tell(WORKER)
    for _ in range(2):
        store.health.forget(WORKER.name)
    assert store.health.workers() == []


def test_a_worker_that_died_is_forgotten_after_a_day(store: Store) -> None:
    store.health.tell(WORKER)
    later = replace(WORKER, name="worker-b", seen_at=WORKER.seen_at + 86_401)
    store.health.tell(later)
    assert store.health.workers() == [later]


@pytest.mark.parametrize(("silent_s", "alive"), [(-3600.0, True), (60.0, True), (61.0, False)])
def test_a_worker_counts_as_alive_for_a_minute_after_its_last_sign(silent_s: float, alive: bool) -> None:
    assert WORKER.is_alive(WORKER.seen_at + silent_s) is alive


# ---------------------------------------------------------------- gauges
def test_an_empty_store_counts_nothing_and_waits_for_nothing(store: Store) -> None:
    gauges = store.health.gauges(now=100.0)
    assert (gauges.num_sweeps, gauges.num_open_trials, gauges.num_ended_trials) == ({}, {}, {})
    assert (gauges.oldest_queued_at, gauges.oldest_pending_at) == (None, None)
    assert gauges.num_pending_deliveries == 0


def test_sweeps_and_trials_are_counted_by_state(store: Store) -> None:
    ended = held_sweep(store)
    measure(store, ended, 0, mfu=0.3)
    finish(store, ended)
    sweep = held_sweep(store)
    measure(store, sweep, 0, mfu=0.3)
    end_trial(store, start(store, sweep, 1), failure())
    start(store, sweep, 2)
    add(store, sweep, 3)
    create(store, now=5.0)
    create(store, now=7.0)
    gauges = store.health.gauges(now=100.0)
    assert gauges.num_sweeps == {RunState.COMPLETE: 1, RunState.RUNNING: 1, RunState.QUEUED: 2}
    assert gauges.num_open_trials == {
        TrialState.COMPLETE: 1,
        TrialState.FAILED: 1,
        TrialState.RUNNING: 1,
        TrialState.QUEUED: 1,
    }
    assert gauges.num_ended_trials == {TrialState.COMPLETE: 2, TrialState.FAILED: 1}
    assert gauges.oldest_queued_at == 5.0
    assert store.health.gauges(now=12.0 + 3600.0).num_ended_trials == {}


def test_deliveries_that_are_pending_are_counted_with_the_oldest(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    for number, at in enumerate((30.0, 20.0, 10.0)):
        announce(store.announcements, replace(announcement(f"rt-{number}"), at=at))
    *_, oldest = store.announcements.deliveries()[0]
    give_up_delivery(store, oldest.id, "410", now=40.0)
    gauges = store.health.gauges(now=100.0)
    assert (gauges.num_pending_deliveries, gauges.oldest_pending_at) == (2, 20.0)
