"""Store contract: sweeps, and lists of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotuner.core.access import Caller, Scope
from autotuner.core.errors import Conflict, LeaseLost, NotFound
from autotuner.core.measurement import LinkEvent, LinkEventKind
from autotuner.core.run import RunState, Stop, StopReason
from autotuner.core.sweep import Budget, RunTrial, Sweep, SweepRequest
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped, TrialState
from autotuner.store.options import ALL_SWEEPS, NEWEST_FIRST, Page, SweepColumn, SweepFilter, SweepOrder
from autotuner.store.schema import head_revision
from autotuner.store.sql import Store, memory_store
from tests.builders import (
    cpu_cluster,
    cpu_layout,
    measurement,
    prediction,
    step_report,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.contracts.acts import (
    LEASE_S,
    OTHER,
    OWNER,
    add,
    claim,
    claim_sweep,
    create,
    end,
    finish,
    finish_sweep,
    gate_result,
    held_sweep,
    held_sweeps,
    lease_of,
    measure,
    release_sweep,
    renew_lease,
    start,
    step,
    take_over,
)
from tests.contracts.crowd import claim_all, in_threads


# ---------------------------------------------------------------------- creating and reading
def test_a_new_sweep_is_queued_and_reads_back_as_it_was_asked(store: Store) -> None:
    request = sweep_request(name="nightly", budget=Budget(num_trials=7, wall_clock_s=0.1))
    sweep, created = store.create_sweep(request, now=5.0)
    assert created
    assert (sweep.request, sweep.state, sweep.created_at) == (request, RunState.QUEUED, 5.0)
    assert store.get_sweep(sweep.id) == sweep


def test_the_same_key_with_an_equal_request_returns_the_stored_sweep(store: Store) -> None:
    first, created = store.create_sweep(sweep_request(), now=1.0, idempotency_key="key")
    again, created_again = store.create_sweep(sweep_request(), now=2.0, idempotency_key="key")
    assert (created, created_again) == (True, False)
    assert again == first
    assert store.runs.list("sweep")[1] == 1


def test_the_same_key_with_an_equal_request_returns_the_sweep_as_it_stands_now(store: Store) -> None:
    store.create_sweep(sweep_request(), now=1.0, idempotency_key="key")
    claimed = claim(store)
    assert store.create_sweep(sweep_request(), now=20.0, idempotency_key="key") == (claimed, False)


def test_the_same_key_with_another_request_is_a_conflict_that_names_the_stored_sweep(store: Store) -> None:
    sweep, _ = store.create_sweep(sweep_request(), now=1.0, idempotency_key="key")
    with pytest.raises(Conflict, match=sweep.id):
        store.create_sweep(sweep_request(seed=1), now=2.0, idempotency_key="key")
    assert store.runs.list("sweep")[1] == 1


def test_a_request_on_this_machine_is_the_same_although_its_cores_were_measured_again(store: Store) -> None:
    sweep, _ = store.create_sweep(on_measured_cores(100e9), now=1.0, idempotency_key="key")
    assert store.create_sweep(on_measured_cores(97e9), now=2.0, idempotency_key="key") == (sweep, False)


def on_measured_cores(fp32_flop_per_s: float) -> SweepRequest:
    core = replace(cpu_cluster().accelerator, fp32_flop_per_s=fp32_flop_per_s, peak_is_measured=True)
    return sweep_request(job=tiny_job(cluster=cpu_cluster(accelerator=core)))


def test_sweeps_are_listed_newest_first_a_page_at_a_time(store: Store) -> None:
    ids = [create(store, now=float(now)).id for now in range(5)]
    page, total = store.list_overviews(now=20.0, page=Page(limit=2, offset=1))
    assert [sweep.id for sweep in page] == [ids[3], ids[2]]
    assert total == 5


def test_a_page_behind_the_last_sweep_is_empty_and_still_knows_the_total(store: Store) -> None:
    create(store)
    assert store.list_overviews(now=20.0, page=Page(offset=9)) == ([], 1)


def test_sweeps_are_listed_by_state(store: Store) -> None:
    running = held_sweep(store)
    queued = create(store)
    for state, ids in ((RunState.QUEUED, [queued.id]), (RunState.RUNNING, [running.id]), (RunState.FAILED, [])):
        listed, total = store.list_overviews(now=20.0, where=SweepFilter(state=state))
        assert ([sweep.id for sweep in listed], total) == (ids, len(ids))


# ---------------------------------------------------------------------- claiming
def waits_since(store: Store, sweep: Sweep) -> float:
    """Return until when the worker of a sweep promised a sign of life."""
    waiting = store.overview(sweep.id, now=1e6).waiting
    assert waiting is not None
    return waiting.since


def test_the_oldest_queued_sweep_is_claimed_first(store: Store) -> None:
    newer, older = create(store, now=2.0), create(store, now=1.0)
    assert [claim(store).id, claim(store).id] == [older.id, newer.id]


def test_a_claimed_sweep_runs_for_its_owner(store: Store) -> None:
    sweep = held_sweep(store)
    assert (sweep.state, sweep.owner) == (RunState.RUNNING, OWNER)
    assert waits_since(store, sweep) == 40.0
    assert sweep.started_at == 10.0
    assert store.get_sweep(sweep.id) == sweep


def test_a_takeover_queues_the_running_trial_again_and_forgets_its_steps(store: Store) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    step(store, trial)
    take_over(store)
    interrupted = store.get_trial(trial.id)
    assert (interrupted.state, interrupted.number, interrupted.attempts) == (TrialState.QUEUED, 0, 1)
    assert (interrupted.steps, interrupted.started_at) == ((), None)


def test_a_takeover_leaves_trials_that_do_not_run_as_they_are(store: Store) -> None:
    sweep = held_sweep(store)
    complete, queued = measure(store, sweep, 0, mfu=0.3), add(store, sweep, 1)
    take_over(store)
    assert [store.get_trial(complete.id), store.get_trial(queued.id)] == [complete, queued]


# ---------------------------------------------------------------------- holding
def test_renewing_is_a_sign_of_life_and_returns_a_cancel_request(store: Store) -> None:
    sweep = held_sweep(store)
    assert renew_lease(store, sweep.id, owner=OWNER, now=20.0).wanted is None
    store.request_cancel(sweep.id, now=21.0)
    assert renew_lease(store, sweep.id, owner=OWNER, now=22.0).wanted is Stop.CANCEL
    assert [lease.renewals for lease in held_sweeps(store)] == [3]
    assert waits_since(store, sweep) == 52.0


def test_a_lapsed_lease_that_nobody_took_over_is_still_held(store: Store) -> None:
    sweep = held_sweep(store)
    renew_lease(store, sweep.id, owner=OWNER, now=1000.0)
    assert waits_since(store, sweep) == 1030.0


WORKER_WRITES: dict[str, Callable[[Store, str, str], Any]] = {
    "renew_lease": lambda store, sweep, trial: renew_lease(store, sweep, owner=OWNER, now=60.0),
    "release_sweep": lambda store, sweep, trial: release_sweep(store, sweep, owner=OWNER, now=60.0),
    "finish_sweep": lambda store, sweep, trial: finish_sweep(
        store, sweep, owner=OWNER, now=60.0, state=RunState.FAILED, reason=StopReason.ERROR, detail=""
    ),
    "add_trial": lambda store, sweep, trial: store.add_trial(
        RunTrial(number=9, layout=cpu_layout(), prediction=prediction()), lease=lease_of(store, sweep)
    ),
    "start_trial": lambda store, sweep, trial: store.start_trial(trial, lease=lease_of(store, trial), now=60.0),
    "add_step": lambda store, sweep, trial: store.add_step(
        trial, step_report(), lease=lease_of(store, trial), now=60.0
    ),
    "finish_trial": lambda store, sweep, trial: store.finish_trial(
        trial, measurement(), lease=lease_of(store, trial), now=60.0
    ),
    "add_note": lambda store, sweep, trial: store.add_note(trial, "waits", lease=lease_of(store, trial), now=60.0),
    "add_link_event": lambda store, sweep, trial: store.add_link_event(
        trial, LinkEvent(step=0, kind=LinkEventKind.LINK_DEAD), lease=lease_of(store, trial), now=60.0
    ),
    "add_gate": lambda store, sweep, trial: store.add_gate(
        trial, gate_result(), lease=lease_of(store, trial), now=60.0
    ),
}

_OF_SWEEPS = ("renew_lease", "release_sweep", "finish_sweep", "add_trial")


@pytest.mark.parametrize("write", WORKER_WRITES.values(), ids=WORKER_WRITES.keys())
def test_a_worker_whose_lease_was_taken_over_writes_nothing(store: Store, write: Callable[..., Any]) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    take_over(store)
    store.start_trial(trial.id, lease=lease_of(store, trial.id, OTHER), now=51.0)
    before = (store.get_sweep(sweep.id), store.get_trial(trial.id), store.list_trials(sweep.id), store.events(sweep.id))
    with pytest.raises(LeaseLost, match=OWNER):
        write(store, sweep.id, trial.id)
    after = (store.get_sweep(sweep.id), store.get_trial(trial.id), store.list_trials(sweep.id), store.events(sweep.id))
    assert after == before


@pytest.mark.parametrize("write", WORKER_WRITES.values(), ids=WORKER_WRITES.keys())
def test_a_worker_that_released_its_sweep_writes_nothing_more(store: Store, write: Callable[..., Any]) -> None:
    sweep = held_sweep(store)
    trial = start(store, sweep)
    release_sweep(store, sweep.id, owner=OWNER, now=12.0)
    with pytest.raises(LeaseLost, match=sweep.id):
        write(store, sweep.id, trial.id)


TRIAL_WRITES = {name: write for name, write in WORKER_WRITES.items() if name not in _OF_SWEEPS}


@pytest.mark.parametrize("write", TRIAL_WRITES.values(), ids=TRIAL_WRITES.keys())
def test_writes_to_a_trial_that_is_not_stored_are_not_found(store: Store, write: Callable[..., Any]) -> None:
    with pytest.raises(NotFound, match="sw-missing"):
        write(store, "sw-missing", "sw-missing-0000")


def test_a_renewal_counts_though_the_clock_was_set_back(store: Store) -> None:
    sweep = held_sweep(store)
    renew_lease(store, sweep.id, owner=OWNER, now=-3590.0)
    assert [lease.renewals for lease in held_sweeps(store)] == [2]


def test_a_worker_that_shares_its_name_with_the_next_holder_has_lost_its_lease(store: Store) -> None:
    sweep = held_sweep(store)
    assert sweep.lease is not None
    take_over(store, owner=OWNER)
    with pytest.raises(LeaseLost):
        store.add_trial(RunTrial(number=0, layout=cpu_layout(), prediction=prediction()), lease=sweep.lease)


def test_a_sweep_that_a_service_with_a_fast_clock_stored_is_claimed_at_once(store: Store) -> None:
    sweep = create(store, now=1e9)
    claimed = claim_sweep(store, owner=OWNER, now=10.0, lease_s=LEASE_S)
    assert claimed is not None
    assert claimed.id == sweep.id


def test_a_sweep_that_was_given_back_comes_before_those_that_were_asked_for_later(store: Store) -> None:
    sweep = held_sweep(store)
    create(store, now=5.0)
    release_sweep(store, sweep.id, owner=OWNER, now=20.0)
    claimed = claim_sweep(store, owner=OTHER, now=21.0, lease_s=LEASE_S)
    assert claimed is not None
    assert claimed.id == sweep.id


# ---------------------------------------------------------------------- ending
def test_cancelling_a_queued_sweep_ends_it_at_once(store: Store) -> None:
    sweep = store.request_cancel(create(store).id, now=3.0)
    assert (sweep.state, sweep.stop_reason, sweep.finished_at) == (RunState.CANCELLED, StopReason.CANCELLED, 3.0)
    assert store.get_sweep(sweep.id) == sweep
    assert claim_sweep(store, owner=OWNER, now=4.0, lease_s=LEASE_S) is None


def test_cancelling_a_running_sweep_leaves_the_end_to_its_worker(store: Store) -> None:
    sweep = store.request_cancel(held_sweep(store).id, now=11.0)
    assert (sweep.state, sweep.owner, sweep.cancel_requested) == (RunState.RUNNING, OWNER, True)


def test_cancelling_a_sweep_that_its_worker_gave_back_ends_it_and_its_trials_at_once(store: Store) -> None:
    held = held_sweep(store)
    trial = add(store, held)
    release_sweep(store, held.id, owner=OWNER, now=11.0)
    sweep = store.request_cancel(held.id, now=12.0)
    assert (sweep.state, sweep.stop_reason, sweep.finished_at) == (RunState.CANCELLED, StopReason.CANCELLED, 12.0)
    assert store.get_trial(trial.id).state is TrialState.CANCELLED
    assert claim_sweep(store, owner=OTHER, now=13.0, lease_s=LEASE_S) is None


def test_cancelling_a_sweep_whose_jobs_an_engine_still_runs_leaves_the_end_to_the_next_worker(store: Store) -> None:
    held = held_sweep(store)
    trial = start(store, held)
    job = EngineJob(engine="slurm", name="t-1-0-0", handle="4711", submitted_at=11.0, phase=EngineJobPhase.RUNNING)
    store.set_job(trial.id, job, lease=lease_of(store, trial.id), now=11.0)
    end(store, trial, Stopped(reason="shutdown"))
    release_sweep(store, held.id, owner=OWNER, now=12.0)
    assert store.request_cancel(held.id, now=13.0).state is RunState.RUNNING
    claimed = claim(store, owner=OTHER, now=14.0)
    assert claimed.cancel_requested
    assert store.get_trial(trial.id).jobs == (job,)


def test_cancelling_a_finished_sweep_changes_nothing(store: Store) -> None:
    finished = finish(store, held_sweep(store))
    assert store.request_cancel(finished.id, now=99.0) == finished


def test_finishing_records_the_end_and_drops_the_lease(store: Store) -> None:
    sweep = finish(store, held_sweep(store))
    assert (sweep.state, sweep.stop_reason, sweep.stop_detail, sweep.finished_at) == (
        RunState.COMPLETE,
        StopReason.TRIAL_BUDGET,
        "4 of 4 trials ran",
        20.0,
    )
    assert sweep.lease is None
    assert store.get_sweep(sweep.id) == sweep


def test_the_detail_of_an_end_may_be_any_text(store: Store) -> None:
    sweep = finish(store, held_sweep(store), state=RunState.FAILED, detail="a worker printed \0 and \ud800")
    assert store.get_sweep(sweep.id).stop_detail.startswith("a worker printed")


def test_finishing_cancels_trials_that_have_not_ended(store: Store) -> None:
    sweep = held_sweep(store)
    complete, running, queued = measure(store, sweep, 0, mfu=0.3), start(store, sweep, 1), add(store, sweep, 2)
    finish(store, sweep)
    assert store.get_trial(complete.id) == complete
    for trial in (running, queued):
        ended = store.get_trial(trial.id)
        assert (ended.state, ended.finished_at) == (TrialState.CANCELLED, 20.0)
        assert ended.stopped == Stopped(reason="budget", detail="4 of 4 trials ran")


# ---------------------------------------------------------------- sweep lists
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


def test_each_owner_of_sweeps_is_listed_once(store: Store) -> None:
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


# ---------------------------------------------------------------- memory
def test_each_store_in_memory_is_empty_and_at_the_newest_revision() -> None:
    first, second = memory_store(), memory_store()
    create(first)
    assert (first.runs.list("sweep")[1], second.runs.list("sweep")[1]) == (1, 0)
    assert second.check() == head_revision()
    first.close()
    second.close()


def test_threads_on_a_store_in_memory_do_not_see_into_each_others_transactions() -> None:
    store = memory_store()
    ids = {create(store, now=float(number)).id for number in range(24)}
    claimed = in_threads(8, lambda index: claim_all(store, f"thread-{index}"))
    assert sorted(sweep_id for mine in claimed for sweep_id in mine) == sorted(ids)
    store.close()


def test_threads_that_write_to_one_sweep_in_memory_lose_no_event() -> None:
    store = memory_store()
    sweep = held_sweep(store)
    trials = [start(store, sweep, number) for number in range(4)]

    def report(index: int) -> None:
        for number in range(20):
            store.add_step(trials[index].id, step_report(number), lease=lease_of(store, trials[index].id), now=12.0)

    in_threads(4, report)
    told = [event for event in store.events(sweep.id) if event.kind == "trial.step"]
    assert len({event.sequence for event in told}) == len(told) == 80
    store.close()
