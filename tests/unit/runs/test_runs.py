"""Sweeps that a worker runs: attempts, small scale and challenges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.errors import InvalidInput
from autotuner.core.job import Job
from autotuner.core.layout import Layout
from autotuner.core.measurement import Measurement
from autotuner.core.objective import Metric, Objective
from autotuner.core.prediction import StepTime
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, Trial, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.workload import Workload
from autotuner.costmodel.predict import predict_one
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.runs.challenge import findings
from autotuner.runs.clock import SystemClock
from autotuner.runs.instructions import given_up, unless_lost_again
from autotuner.search.results.reached import standings
from autotuner.search.sampler.pareto import on_front, trial_values
from autotuner.store.sql import Store, memory_store
from tests.builders import (
    cpu_cluster,
    engine_job,
    failure,
    h100_cluster,
    present,
    queued_trial,
    sweep_request,
    tiny_job,
    tiny_model,
)
from tests.contracts.acts import lease_of, release_sweep
from tests.fake_launcher import FakeLauncher, plain_measurement, sweep_worker
from tests.unit.runs.challenged import TEST, a_fifth_slower_incumbent, challenge, challenged
from tests.unit.runs.test_sweep_trials import mixed_precision_request

# ---------------------------------------------------------------- small scale
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
    assert "more layouts have no proxy trial on 2 ranks" in sweep.stop_detail
    assert "4 tensor ranks do not divide the 2 accelerators of a node" in sweep.stop_detail


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


def test_the_next_worker_estimates_the_trials_that_a_dead_worker_measured() -> None:
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
    with pytest.raises(
        InvalidInput, match="must have fewer accelerators than the cluster that the sweep is for, which has 8"
    ):
        for_eight_ranks(trial_cluster=cpu_cluster(8))
    with pytest.raises(InvalidInput, match="must have the same accelerators as the cluster that the sweep is for"):
        for_eight_ranks(trial_cluster=h100_cluster(1))


def test_proxy_trials_are_estimated_along_a_front_of_the_large_job() -> None:
    front = (Metric.MFU, Metric.SIMPLICITY)
    request = for_eight_ranks(objective=Objective(front=front))
    store, sweep = swept(request, FakeLauncher(as_it_is))
    trials = trials_of(store, sweep)
    assert len(trials) == 6
    every = trial_values(request.objective, front, trials)
    assert [one.trial.number for one in every] == [trial.number for trial in trials]
    assert {trial.number for trial in on_front(request.objective, trials)} < {trial.number for trial in trials}


# ---------------------------------------------------------------- attempts
JOB = EngineJob(engine="slurm", name="job", handle="4711", submitted_at=1.0)
LOST = replace(JOB, phase=EngineJobPhase.LOST, detail="node2 does not answer", started_at=2.0, ended_at=3.0)


class Losing(FakeLauncher):
    """An engine that loses the first nodes of some trials, after their first job was told."""

    def __init__(self, is_lost: Callable[[TrialSpec], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        job = replace(JOB, name=f"{spec.trial_id}-{len(self.specs)}", handle=str(len(self.specs)))
        watcher.on_job(job)
        if not self._is_lost(spec):
            return super().run(spec, watcher)
        self.specs.append(spec)
        watcher.on_job(replace(job, phase=EngineJobPhase.LOST, started_at=2.0, ended_at=3.0))
        return Stopped(reason="infrastructure", detail=f"node2 does not answer, {len(self.specs)}")


def attempted(launcher: Launcher, request: SweepRequest | None = None) -> tuple[Store, Sweep]:
    store = memory_store()
    asked = request or sweep_request(budget=Budget(num_trials=3, min_gain=0, prune_below=0))
    sweep_id = store.create_sweep(asked, now=time.time())[0].id
    sweep_worker(store, launcher, SystemClock(), owner="one", lease_s=15.0).run_once()
    return store, store.get_sweep(sweep_id)


@pytest.mark.parametrize("num_losses", [1, 2])
def test_a_trial_whose_nodes_are_lost_runs_again_under_its_number(num_losses: int) -> None:
    losses = iter(range(num_losses))
    launcher = Losing(lambda spec: spec.trial_id.endswith("0001") and next(losses, None) is not None)
    store, ended = attempted(launcher)
    trials, _ = store.list_trials(ended.id)
    assert (ended.state, [one.state for one in trials]) == (RunState.COMPLETE, [TrialState.COMPLETE] * 3)
    assert [one.attempts for one in trials] == [1, num_losses + 1, 1]
    assert len(trials[1].jobs) == num_losses + 1
    notes = [event.data["note"] for event in store.events(ended.id) if event.kind == "trial.note"]
    assert notes[0] == "node2 does not answer, 2; attempt 1 of 3 is lost, and the trial is queued again"
    assert [len(spec.jobs) for spec in launcher.specs if spec.trial_id.endswith("0001")] == list(range(num_losses + 1))


def test_a_trial_whose_nodes_are_lost_each_time_fails_and_says_how_the_last_ended() -> None:
    store, ended = attempted(Losing(lambda spec: spec.trial_id.endswith("0001")))
    failed = store.list_trials(ended.id)[0][1]
    assert (failed.state, failed.attempts, len(failed.jobs)) == (TrialState.FAILED, 3, 3)
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.INFRASTRUCTURE
    assert failed.failure.message == (
        "its nodes were lost or never became available in 3 attempts; the last time: node2 does not answer, 4"
    )


def test_a_gate_whose_nodes_are_lost_each_time_gates_nothing_and_the_sweep_ends() -> None:
    store, ended = attempted(Losing(lambda spec: "-gate-" in spec.trial_id), mixed_precision_request())
    (gated,) = [one for one in store.list_trials(ended.id)[0] if one.gate]
    assert gated.gate is not None
    assert gated.gate.outcome is GateOutcome.NOT_GATED
    assert gated.gate.detail.startswith("its nodes were lost or never became available in 3 attempts")
    assert gated.gate.accelerator_hours == pytest.approx(3 * gated.layout.world_size / 3600)


def test_the_reason_for_giving_up_a_trial_is_stated_unless_its_job_continues() -> None:
    assert given_up(queued_trial(attempts=2)) is None
    interrupted = present(given_up(queued_trial(attempts=3)))
    assert (interrupted.kind, interrupted.message) == (
        FailureKind.INTERRUPTED,
        "interrupted 3 times: the service ended each time while this trial ran",
    )
    lost = present(given_up(queued_trial(attempts=3, jobs=(LOST,))))
    assert lost.kind is FailureKind.INFRASTRUCTURE
    assert lost.message.endswith("the last time: node2 does not answer")
    assert given_up(queued_trial(attempts=3, jobs=(LOST, JOB))) is None


@pytest.mark.parametrize("reason", ["shutdown", "cancelled", "budget"])
def test_only_lost_nodes_make_a_failure_of_a_stop(reason: str) -> None:
    stopped = Stopped(reason=reason)  # type: ignore[arg-type]  # one of the words
    assert unless_lost_again(queued_trial(state=TrialState.RUNNING, attempts=3), stopped) is stopped


def test_a_restarted_service_hands_the_job_on_and_counts_one_attempt() -> None:
    shutdown = threading.Event()
    store = memory_store()
    request = sweep_request(budget=Budget(num_trials=1, min_gain=0))
    sweep_id = store.create_sweep(request, now=time.time())[0].id

    class Leaving(FakeLauncher):
        """Is told of a shutdown while its job waits, which it leaves alone."""

        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            watcher.on_job(JOB)
            shutdown.set()
            return watcher.stop_requested() or super().run(spec, watcher)

    sweep_worker(store, Leaving(), SystemClock(), owner="one", lease_s=15.0, shutdown=shutdown).run_once()
    next_one = FakeLauncher()
    sweep_worker(store, next_one, SystemClock(), owner="two", lease_s=15.0).run_once()
    (ended,) = store.list_trials(sweep_id)[0]
    assert [spec.jobs for spec in next_one.specs] == [(JOB,)]
    assert (ended.state, ended.attempts, ended.jobs[0].phase) == (TrialState.COMPLETE, 1, EngineJobPhase.ENDED)


# ---------------------------------------------------------------- challenged run
BASELINE_FREE = challenge(baseline=())

IN_EACH_PHASE = (1, 3, 6)
"""Numbers of trials: an incumbent's repeat, one of the search, one by turns."""


def worked(store: Store, launcher: FakeLauncher, shutdown: threading.Event | None = None, owner: str = "one") -> None:
    sweep_worker(store, launcher, SystemClock(), owner=owner, lease_s=15.0, shutdown=shutdown).run_once()


def stored(request: SweepRequest) -> tuple[Store, str]:
    store = memory_store()
    return store, store.create_sweep(request, now=0.0)[0].id


def test_repeats_are_stored_without_a_rank_and_no_budget_counts_them() -> None:
    request = challenged(BASELINE_FREE)
    store, sweep_id = stored(request)
    worked(store, FakeLauncher(a_fifth_slower_incumbent))
    ended, trials = store.get_sweep(sweep_id), store.list_trials(sweep_id)[0]
    repeats = [trial for trial in trials if trial.repeats is not None]
    assert (ended.state, ended.stop_reason) == (RunState.COMPLETE, StopReason.COMPARED)
    assert len(trials) - len(repeats) == request.budget.num_trials
    assert {trial.number for trial in store.ranking(sweep_id)[0]}.isdisjoint(trial.number for trial in repeats)
    assert store.overview(sweep_id, now=0.0).num_repeats == len(repeats)
    assert findings(request, trials).is_better


def test_trials_of_a_challenge_run_once_each_and_an_incumbent_the_fewest_times() -> None:
    store, _ = stored(challenged(BASELINE_FREE))
    launcher = FakeLauncher(a_fifth_slower_incumbent)
    worked(store, launcher)
    assert {spec.settings.num_runs for spec in launcher.specs} == {1}
    store, sweep_id = stored(challenged(challenge(baseline=(), searches=False)))
    worked(store, FakeLauncher())
    assert store.list_trials(sweep_id)[1] == TEST.min_runs


def test_a_worker_that_shuts_down_in_any_phase_leaves_the_rest_to_the_next() -> None:
    request = challenged(BASELINE_FREE, budget=Budget(num_trials=2))
    store, sweep_id = stored(request)
    worked(store, FakeLauncher(a_fifth_slower_incumbent))
    whole = [(trial.layout, trial.repeats) for trial in store.list_trials(sweep_id)[0]]
    for num in IN_EACH_PHASE:
        store, sweep_id = stored(request)
        shutdown = threading.Event()
        worked(store, FakeLauncher(_ending(shutdown, after=num)), shutdown)
        assert store.get_sweep(sweep_id).state is RunState.RUNNING
        worked(store, FakeLauncher(a_fifth_slower_incumbent), owner="two")
        trials = store.list_trials(sweep_id)[0]
        assert [(trial.layout, trial.repeats) for trial in trials] == whole
        assert {trial.state for trial in trials} == {TrialState.COMPLETE}


def _ending(shutdown: threading.Event, *, after: int) -> Callable[[TrialSpec], Measurement]:
    """A launcher's behaviour in which the worker is told to stop while that trial runs."""

    def run(spec: TrialSpec) -> Measurement:
        if spec.trial_id.endswith(f"-{after:04d}"):
            shutdown.set()
        return a_fifth_slower_incumbent(spec)

    return run


@pytest.mark.parametrize("number", [1, 6])  # of the incumbent, and of the challenger
def test_the_job_of_a_repeat_that_goes_on_is_found_again_by_the_next_worker(number: int) -> None:
    shutdown = threading.Event()
    store, sweep_id = stored(challenged(BASELINE_FREE))
    job = engine_job(f"repeat-{number}")

    class Leaving(FakeLauncher):
        """Is told of a shutdown while the repeat's job waits, which it leaves alone."""

        def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
            if spec.trial_id.endswith(f"-{number:04d}"):
                watcher.on_job(job)
                shutdown.set()
            return watcher.stop_requested() or super().run(spec, watcher)

    worked(store, Leaving(a_fifth_slower_incumbent), shutdown)
    next_one = FakeLauncher(a_fifth_slower_incumbent)
    worked(store, next_one, owner="two")
    found = store.list_trials(sweep_id)[0][number]
    assert next_one.specs[0].jobs == (job,)
    assert found.repeats is not None
    assert (found.state, found.attempts) == (TrialState.COMPLETE, 1)
