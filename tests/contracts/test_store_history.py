"""Store contract: what trials of all sweeps measured, newest first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotuner.core.measurement import PhaseTimes
from autotuner.core.stack import Stack
from autotuner.core.sweep import Sweep, job_key
from autotuner.core.trial import FailureKind, Stopped
from autotuner.core.trial_spec import TrialSettings
from autotuner.store.sql import Store
from tests.builders import (
    breakdown,
    cpu_cluster,
    cpu_layout,
    failure,
    measurement,
    proxy_trial,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.contracts.acts import claim, create, end, finish, start, step

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


def test_a_measured_trial_is_told_with_its_job(store: Store) -> None:
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


def test_what_finished_later_is_left_out(store: Store) -> None:
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


def test_running_out_of_memory_is_told_and_other_deaths_are_not(store: Store) -> None:
    sweep = history_sweep(store)
    for number, kind in enumerate((FailureKind.OOM, FailureKind.CRASH)):
        end(store, start(store, sweep, number, layout=PAIR), failure(kind))
    (past,) = store.history.measured("cpu", before=EVER)
    assert past.ran_out_of_memory


def test_a_pruned_trial_tells_the_median_of_its_steps(store: Store) -> None:
    sweep = history_sweep(store)
    pruned = start(store, sweep, 0, layout=PAIR)
    for number, step_time_s in enumerate((9.0, 0.9, 0.7, 0.8)):
        step(store, pruned, number, step_time_s=step_time_s, is_warmup=number == 0)
    end(store, pruned, Stopped(reason="pruned"))
    end(store, start(store, sweep, 1, layout=PAIR), Stopped(reason="pruned"))
    end(store, start(store, sweep, 2, layout=PAIR), Stopped(reason="cancelled"))
    assert times(store) == [0.8]


def test_what_was_simulated_is_left_out(store: Store) -> None:
    sweep = history_sweep(store)
    measured(store, sweep, 0, 0.5, is_simulated=True)
    finish(store, sweep)
    simulated = history_sweep(store, now=2.0, job=tiny_job(cluster=replace(cpu_cluster(), engine="simulated")))
    end(store, start(store, simulated, 0, layout=PAIR), failure())
    assert times(store) == []


def test_a_trial_under_a_memory_budget_is_told_with_that_budget(store: Store) -> None:
    sweep = history_sweep(store, trial=TrialSettings(memory_budget_bytes=10**9))
    measured(store, sweep, 0, 0.5)
    (past,) = store.history.measured("cpu", before=EVER)
    assert past.job.cluster.accelerator.memory_bytes == 10**9


def test_a_proxy_trial_is_told_as_what_ran(store: Store) -> None:
    sweep = history_sweep(store, job=tiny_job(8), trial_cluster=cpu_cluster(2))
    layout = cpu_layout(data_parallel_replicate_degree=4, tensor_parallel_degree=2)
    end(store, start(store, sweep, layout=layout, scaled=proxy_trial()), measurement())
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
