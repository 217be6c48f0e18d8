"""Sweeps whose trials run on fewer ranks than their job has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.prediction import StepTime
from autotuner.core.run import RunState
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import FailureKind, Trial, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.contract import Launcher
from autotuner.runs.clock import SystemClock
from autotuner.search.pareto import on_front, valued
from autotuner.search.results.reached import standings
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_cluster, failure, h100_cluster, present, sweep_request, tiny_job, tiny_model
from tests.contracts.acts import lease_of, release_sweep
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker

SLOWER = {"matrix_s": 1.4, "tensor_communication_s": 3.0, "data_communication_s": 1.5, "pipeline_communication_s": 2.0}
"""How much longer each part takes than predicted, in small runs and in large ones alike."""


def for_eight_ranks(**changes: object) -> SweepRequest:
    job = replace(
        tiny_job(8), model=tiny_model(num_layers=8, num_kv_heads=4), workload=Workload(seq_len=64, global_batch_size=32)
    )
    budget = Budget(num_trials=6, min_gain=0, prune_below=0)
    return replace(sweep_request(job=job, budget=budget, trial_cluster=cpu_cluster(2)), **changes)  # type: ignore[arg-type]


def true_s(layout: Layout, job: Job, slower: Mapping[str, float] = SLOWER) -> float:
    parts = predict_one(layout, job).step_time
    return float(sum(slower.get(f.name, 1.0) * getattr(parts, f.name) for f in fields(StepTime)))


def as_it_is(spec: TrialSpec) -> Measurement:
    job = Job(model=spec.model, workload=spec.workload, cluster=present(spec.cluster))
    return plain_measurement(spec, step_time_s=true_s(spec.layout, job))


def swept(request: SweepRequest, launcher: Launcher, store: Store | None = None) -> tuple[Store, Sweep]:
    store = store or memory_store()
    sweep_id = store.create_sweep(request, now=time.time())[0].id
    sweep_worker(store, launcher, SystemClock(), owner="one", lease_s=15.0).run_once()
    return store, store.get_sweep(sweep_id)


def trials_of(store: Store, sweep: Sweep) -> list[Trial]:
    return list(store.list_trials(sweep.id)[0])


def test_trials_run_on_the_small_cluster_and_are_about_layouts_of_the_large_one() -> None:
    launcher = FakeLauncher(as_it_is)
    store, sweep = swept(for_eight_ranks(), launcher)
    trials = trials_of(store, sweep)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert {trial.layout.world_size for trial in trials} == {8}
    for spec, trial in zip(launcher.specs, trials, strict=True):
        assert spec.layout == trial.ran
        assert present(spec.cluster).world_size == spec.layout.world_size <= 2
        assert present(trial.ran_measurement).peak_flop_per_s == 100e9 * spec.layout.world_size


def test_the_ranking_is_that_of_estimates_in_the_hours_of_the_ranks_that_ran() -> None:
    store, sweep = swept(for_eight_ranks(), FakeLauncher(as_it_is))
    ranked, total = store.ranking(sweep.id)
    assert total == 6
    estimates = [trial.estimate for trial in ranked if trial.estimate is not None]
    assert len(estimates) == total
    assert estimates == sorted(estimates, key=lambda one: -one.mfu)
    sizes = [(one.num_trial_ranks, one.num_ranks, one.is_simulated) for one in estimates]
    assert sizes == [(trial.ran.world_size, 8, False) for trial in ranked]
    times = store.ranked_times(sweep.id)
    assert [one.step_time_s for one in times] == [one.step_time_s for one in estimates]
    assert sum(one.probability_best for one in standings(times).values()) == pytest.approx(1.0)
    for trial in trials_of(store, sweep):
        seconds = present(trial.finished_at) - present(trial.started_at)
        assert trial.accelerator_hours(time.time()) == pytest.approx(seconds * trial.ran.world_size / 3600)
    hours = sum(trial.accelerator_hours(time.time()) for trial in trials_of(store, sweep))
    assert store.overview(sweep.id, now=time.time()).progress.accelerator_hours == pytest.approx(hours)


@pytest.mark.oracle  # seconds of a sampler's work
def test_proxy_trials_bring_estimates_nearer_to_the_truth_than_predictions_are() -> None:
    request = for_eight_ranks(budget=Budget(num_trials=10, min_gain=0, prune_below=0))
    store, sweep = swept(request, FakeLauncher(as_it_is))
    errors = []
    for trial in trials_of(store, sweep):
        truth = true_s(trial.layout, request.trial_job)
        predicted = trial.prediction.step_time.total_s
        errors.append((abs(present(trial.estimate).step_time_s / truth - 1), abs(predicted / truth - 1)))
    estimated, predicted = (sum(column) / len(errors) for column in zip(*errors, strict=True))
    assert estimated < predicted / 2


def test_no_small_run_is_made_twice_and_layouts_without_a_trial_are_counted() -> None:
    launcher = FakeLauncher(as_it_is)
    swept(for_eight_ranks(budget=Budget(num_trials=16, min_gain=0, prune_below=0)), launcher)
    ran = [(spec.layout, spec.model.num_layers, spec.workload) for spec in launcher.specs]
    assert len(ran) == len(set(ran))
    request = for_eight_ranks(budget=Budget(num_trials=1000, min_gain=0, prune_below=0))
    narrow = replace(request, space=request.space.with_axes(tensor_parallel_degree=(2, 4), micro_batch_size=(1,)))
    _, sweep = swept(narrow, FakeLauncher(as_it_is))
    assert "more no trial stands on 2 ranks" in sweep.stop_detail
    assert "4 tensor ranks do not divide the 2 of its nodes" in sweep.stop_detail


def test_a_proxy_trial_out_of_memory_is_a_failure_that_leaves_its_layout_open_to_others() -> None:
    def first_runs_out(spec: TrialSpec) -> Measurement | TrialFailure:
        return failure(FailureKind.OOM) if spec.trial_id.endswith("0000") else as_it_is(spec)

    store, sweep = swept(for_eight_ranks(), FakeLauncher(first_runs_out))
    trials = trials_of(store, sweep)
    assert [trial.state for trial in trials].count(TrialState.FAILED) == 1
    assert trials[0].estimate is None
    assert all(trial.estimate for trial in trials[1:])


def test_a_trial_is_pruned_by_what_its_steps_would_be_at_full_size() -> None:
    slow = iter([1.0, *[50.0] * 30])

    def slower_after_the_first(spec: TrialSpec) -> Measurement:
        measured = as_it_is(spec)
        return plain_measurement(spec, step_time_s=measured.step_time_s * next(slow))

    request = for_eight_ranks(budget=Budget(num_trials=4, min_gain=0, prune_below=0.5))
    store, sweep = swept(request, FakeLauncher(slower_after_the_first))
    pruned = [trial for trial in trials_of(store, sweep) if trial.state is TrialState.PRUNED]
    assert len(pruned) == 3
    assert all(trial.stopped and "at full size by prediction, below 50 %" in trial.stopped.detail for trial in pruned)


def test_what_was_measured_before_a_worker_died_is_estimated_by_the_next() -> None:
    class Dying(FakeLauncher):
        """Measures one trial and loses its worker before anything is estimated."""

        def run(self, spec: TrialSpec, watcher: object) -> Measurement:
            del watcher
            store.finish_trial(
                spec.trial_id, as_it_is(spec), lease=lease_of(store, spec.trial_id, "one"), now=time.time()
            )
            raise SystemExit

    store = memory_store()
    request = for_eight_ranks(budget=Budget(num_trials=1, min_gain=0))
    sweep_id = store.create_sweep(request, now=0.0)[0].id
    with pytest.raises(SystemExit):
        sweep_worker(store, Dying(), SystemClock(), owner="one", lease_s=15.0).run_once()
    (before,) = store.list_trials(sweep_id)[0]
    assert (before.state, before.is_ranked) == (TrialState.COMPLETE, False)
    release_sweep(store, sweep_id, owner="one", now=0.0)
    sweep_worker(store, FakeLauncher(as_it_is), SystemClock(), owner="two", lease_s=15.0).run_once()
    assert store.get_sweep(sweep_id).state is RunState.COMPLETE
    (after,), total = store.ranking(sweep_id)
    assert total == 1
    assert after.estimate is not None


def test_a_cluster_for_trials_has_fewer_ranks_and_the_same_accelerators() -> None:
    with pytest.raises(InvalidInput, match="must have fewer accelerators than the 8"):
        for_eight_ranks(trial_cluster=cpu_cluster(8))
    with pytest.raises(InvalidInput, match="must have the accelerators of the cluster that the sweep is for"):
        for_eight_ranks(trial_cluster=h100_cluster(1))


def test_proxy_trials_are_estimated_along_a_front_of_the_large_job() -> None:
    front = (Metric.MFU, Metric.SIMPLICITY)
    request = for_eight_ranks(objective=Objective(front=front))
    store, sweep = swept(request, FakeLauncher(as_it_is))
    trials = trials_of(store, sweep)
    assert len(trials) == 6
    every = valued(request.objective, front, trials)
    assert [one.trial.number for one in every] == [trial.number for trial in trials]
    assert {trial.number for trial in on_front(request.objective, trials)} < {trial.number for trial in trials}
