"""Store contract: what past trials tell, and what retention deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select

from autotuner.core.measurement import LinkEvent, LinkEventKind, PhaseTimes
from autotuner.core.run import RunState
from autotuner.core.stack import Stack
from autotuner.core.sweep import Sweep, job_key
from autotuner.core.trial import FailureKind, Outcome, Stopped, trial_id
from autotuner.core.trial_spec import TrialSettings
from autotuner.store.engine import make_engine, reading, writing
from autotuner.store.retention import Thinned
from autotuner.store.sql import Store
from autotuner.store.tables import audit, sweeps
from tests import runs
from tests.announcements import announce
from tests.builders import (
    breakdown,
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    proxy_trial,
    step_timeline,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.contracts.acts import claim, create, end, finish, held_sweep, lease_of, start, step
from tests.contracts.upkeep import announcement, webhook

# ---------------------------------------------------------------- history
PAIR = cpu_layout(data_parallel_replicate_degree=2)
"""A layout of both ranks of the job."""

EVER = 1000.0


def history_sweep(store: Store, *, now: float = 1.0, **changes: Any) -> Sweep:
    """The only sweep of the store that a worker holds."""
    create(store, now=now, **changes)
    return claim(store)


def times(
    store: Store, accelerator: str = "cpu", stack: str | None = None, *, before: float = EVER
) -> list[float | None]:
    return [past.step_time_s for past in store.history.measured(accelerator, stack, before=before)]


def measured(store: Store, sweep: Sweep, number: int, step_time_s: float, **changes: Any) -> None:
    end(store, start(store, sweep, number, layout=PAIR), measurement(step_time_s=step_time_s, **changes))


def test_a_measured_trial_is_reported_with_its_job(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5)
    (past,) = store.history.measured("cpu", before=EVER)
    assert (past.job, past.layout, past.step_time_s, past.peak_bytes) == (tiny_job(), PAIR, 0.5, 10_000_000)
    assert (past.sweep_id, past.trainer, past.finished_at) == (sweep.id, None, 12.0)
    assert past.environment == {"torch": "2.13.0"}


def test_a_past_trial_says_where_its_step_went_and_how_much_others_used(store: Store) -> None:
    sweep, profiled = history_sweep(store), breakdown(forward_s=0.2, backward_s=0.3)
    phases = PhaseTimes(forward_backward_s=0.4, gradient_sync_s=0.05, optimizer_s=0.05)
    measured(store, sweep, 0, 0.5, phases=phases, foreign_cpu_share=0.25)
    measured(store, sweep, 1, 0.5, phases=phases, breakdown=profiled)
    later, earlier = store.history.measured("cpu", before=EVER)
    assert (earlier.parts, earlier.foreign_share) == (phases, 0.25)
    assert later.parts == profiled


def test_the_newest_sweep_comes_first_and_of_a_sweep_the_last_trial(store: Store) -> None:
    for now in (2.0, 1.0):
        sweep = history_sweep(store, now=now)
        for number in range(2):
            measured(store, sweep, number, now + number / 10)
        finish(store, sweep)
    assert times(store) == [2.1, 2.0, 1.1, 1.0]
    assert [past.step_time_s for past in store.history.measured("cpu", before=EVER, limit=3)] == [2.1, 2.0, 1.1]


def test_trials_that_finished_later_are_left_out(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5)
    assert times(store, before=12.0) == []
    assert times(store, before=12.1) == [0.5]


def test_other_hardware_and_other_software_are_left_out(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5)
    finish(store, sweep)
    other = history_sweep(store, now=2.0, job=tiny_job(stack=Stack(name="other")))
    measured(store, other, 0, 0.6)
    assert times(store) == [0.6, 0.5]
    assert times(store, stack="torch") == [0.5]
    assert times(store, stack="other") == [0.6]
    assert times(store, "h100-sxm") == []


def test_running_out_of_memory_is_reported_and_other_deaths_are_not(store: Store) -> None:
    sweep = history_sweep(store)
    for number, kind in enumerate((FailureKind.OOM, FailureKind.CRASH)):
        end(store, start(store, sweep, number, layout=PAIR), failure(kind))
    (past,) = store.history.measured("cpu", before=EVER)
    assert past.ran_out_of_memory


def test_a_pruned_trial_has_the_median_of_its_steps(store: Store) -> None:
    sweep = history_sweep(store)
    pruned = start(store, sweep, 0, layout=PAIR)
    for number, step_time_s in enumerate((9.0, 0.9, 0.7, 0.8)):
        step(store, pruned, number, step_time_s=step_time_s, is_warmup=number == 0)
    end(store, pruned, Stopped(reason="pruned"))
    end(store, start(store, sweep, 1, layout=PAIR), Stopped(reason="pruned"))
    end(store, start(store, sweep, 2, layout=PAIR), Stopped(reason="cancelled"))
    assert times(store) == [0.8]


def test_simulated_trials_are_left_out(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5, is_simulated=True)
    finish(store, sweep)
    simulated = history_sweep(store, now=2.0, job=tiny_job(cluster=replace(cpu_cluster(), engine="simulated")))
    end(store, start(store, simulated, 0, layout=PAIR), failure())
    assert times(store) == []


def test_a_trial_under_a_memory_budget_is_reported_with_that_budget(store: Store) -> None:
    sweep = history_sweep(store, trial=TrialSettings(memory_budget_bytes=10**9))
    measured(store, sweep, 0, 0.5)
    (past,) = store.history.measured("cpu", before=EVER)
    assert past.job.cluster.accelerator.memory_bytes == 10**9


def test_a_proxy_trial_is_reported_as_what_ran(store: Store) -> None:
    sweep = history_sweep(store, job=tiny_job(8), trial_cluster=cpu_cluster(2))
    layout = cpu_layout(data_parallel_replicate_degree=4, tensor_parallel_degree=2)
    end(store, start(store, sweep, layout=layout, proxy=proxy_trial()), measurement())
    (past,) = store.history.measured("cpu", before=EVER)
    assert (past.layout, past.job.cluster.world_size) == (proxy_trial().layout, 2)
    assert past.job.workload.global_batch_size == 2


def test_a_layout_of_another_size_than_its_cluster_is_no_evidence(store: Store) -> None:
    sweep = history_sweep(store)
    end(store, start(store, sweep, 0, layout=cpu_layout()), measurement())
    assert times(store) == []


def test_trials_of_the_very_job_are_found_whatever_the_space_and_budget(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5)
    finish(store, sweep)
    other = history_sweep(store, now=2.0, job=tiny_job(model=tiny_model(name="other", num_layers=6)))
    measured(store, other, 0, 0.6)
    asked_again = sweep_request(name="again", seed=7)
    (past,) = store.history.of_job(job_key(asked_again), before=EVER)
    assert past.step_time_s == 0.5
    assert store.history.of_job(job_key(asked_again), before=12.0) == []


def test_the_newest_trial_of_all_says_when_history_changed(store: Store) -> None:
    assert store.history.newest_at() is None
    measured(store, history_sweep(store), 0, 0.5)
    assert store.history.newest_at() == 12.0


# ---------------------------------------------------------------- retention
def lived_sweep(store: Store, *, ended_at: float = 20.0) -> Sweep:
    """Of its trials one was measured, one ended early, one failed: each with two steps, a note and a dead link."""
    sweep = held_sweep(store)
    outcomes: tuple[Outcome, ...] = (measurement(), Stopped(reason="pruned"), failure())
    for number, outcome in enumerate(outcomes):
        trial = start(store, sweep, number)
        for moment in (0, 1):
            step(store, trial, moment)
        store.add_note(trial.id, "waits for the machine", lease=lease_of(store, trial.id), now=12.0)
        found = LinkEvent(step=1, kind=LinkEventKind.LINK_DEAD, stages=(0, 1))
        store.add_link_event(trial.id, found, lease=lease_of(store, trial.id), now=12.0)
        end(store, trial, outcome)
    return finish(store, sweep, now=ended_at)


def test_a_sweep_is_thinned_once_from_its_age_on(store: Store) -> None:
    lived_sweep(store, ended_at=20.0)
    assert store.retention.thin_sweep(before=19.9, now=100.0) is None
    thinned = store.retention.thin_sweep(before=20.0, now=100.0)
    assert thinned == Thinned(num_sweeps=1, num_steps=2, num_events=12)
    assert store.retention.thin_sweep(before=20.0, now=101.0) is None


def test_steps_of_measured_trials_go_and_those_that_later_sweeps_learn_from_stay(store: Store) -> None:
    sweep = lived_sweep(store)
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert [len(store.get_trial(trial_id(sweep.id, number)).steps) for number in range(3)] == [0, 2, 2]


def test_measurements_and_first_and_last_events_outlive_retention(store: Store) -> None:
    sweep = lived_sweep(store)
    before = (store.list_trials(sweep.id), store.ranking(sweep.id), store.overview(sweep.id, now=50.0))
    inside = ("trial.step", "trial.link_event", "trial.note")
    events = [event for event in store.events(sweep.id) if event.kind not in inside]
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert (store.list_trials(sweep.id), store.ranking(sweep.id), store.overview(sweep.id, now=50.0)) == before
    assert store.events(sweep.id) == events


def test_the_timeline_of_a_measured_step_goes_with_the_steps(store: Store) -> None:
    sweep = held_sweep(store)
    trial = end(store, start(store, sweep), measurement(timeline=step_timeline()))
    finish(store, sweep, now=20.0)
    store.retention.thin_sweep(before=20.0, now=100.0)
    assert store.get_trial(trial.id).measurement == measurement()


def test_an_unfinished_sweep_is_never_thinned(store: Store) -> None:
    trial = start(store, held_sweep(store))
    step(store, trial)
    create(store)
    assert store.retention.thin_sweep(before=1e12, now=1e12) is None


def test_a_sweep_that_ended_again_is_thinned_again(store: Store, database_url: str) -> None:
    lived_sweep(store)
    store.retention.thin_sweep(before=20.0, now=100.0)
    engine = make_engine(database_url)
    with writing(engine) as connection:
        connection.execute(sweeps.update().values(finished_at=200.0))
    engine.dispose()
    thinned = store.retention.thin_sweep(before=200.0, now=300.0)
    assert thinned == Thinned(num_sweeps=1)


def test_the_sweep_that_ended_first_is_thinned_first(store: Store) -> None:
    late = lived_sweep(store, ended_at=30.0)
    early = lived_sweep(store, ended_at=25.0)
    num_events = {sweep.id: len(store.events(sweep.id)) for sweep in (late, early)}
    for sweep in (early, late):
        assert len(store.events(sweep.id)) == num_events[sweep.id]
        assert store.retention.thin_sweep(before=50.0, now=100.0) is not None
        assert len(store.events(sweep.id)) < num_events[sweep.id]
    assert store.retention.thin_sweep(before=50.0, now=100.0) is None


# ---------------------------------------------------------------------- announcements and the audit log
def test_old_announcements_go_with_their_deliveries(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement("old"))
    runs.end(store, runs.claimed(store, "delivery"), RunState.COMPLETE, "200")
    young = replace(announcement("young"), at=50.0)
    announce(store.announcements, young)
    assert [store.retention.prune_announcements(before=50.0) for _ in range(2)] == [1, 0]
    assert store.announcements.feed() == ([young], 1)
    assert store.announcements.deliveries()[1] == 1


def test_an_announcement_that_is_yet_to_be_delivered_stays(store: Store) -> None:
    store.announcements.save_webhook(webhook())
    announce(store.announcements, announcement())
    assert store.retention.prune_announcements(before=1e12) == 0
    assert store.announcements.feed()[1] == 1


@pytest.mark.parametrize("num_entries", [3, 1001])
def test_old_entries_of_the_audit_log_are_removed(store: Store, database_url: str, num_entries: int) -> None:
    values = {"caller": "ana", "action": "a", "subject": "/", "status": 200, "request_id": "r", "address": "::1"}
    engine = make_engine(database_url)
    with writing(engine) as connection:
        rows = [{"id": f"{number:04d}", "at": float(number), **values} for number in range(num_entries + 1)]
        connection.execute(insert(audit), rows)
    removed = 0
    while num := store.retention.prune_audit(before=float(num_entries)):
        removed += num
    with reading(engine) as connection:
        assert connection.scalars(select(audit.c.at)).all() == [float(num_entries)]
    engine.dispose()
    assert removed == num_entries
