"""Trials whose nodes are lost are tried again a few times; jobs that go on are found again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from autotuner.core.convergence_gate import GateOutcome
from autotuner.core.measurement import Measurement
from autotuner.core.run import RunState
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import EngineJob, EngineJobPhase, FailureKind, Stopped, TrialFailure, TrialState
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher, TrialWatcher
from autotuner.runs.clock import SystemClock
from autotuner.search.sweeps.instructions import given_up, unless_lost_again
from autotuner.store.sql import Store, memory_store
from tests.builders import present, queued_trial, sweep_request
from tests.fake_launcher import FakeLauncher, sweep_worker
from tests.unit.runs.test_sweep_trials import mixed_precision_request

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


def swept(launcher: Launcher, request: SweepRequest | None = None) -> tuple[Store, Sweep]:
    store = memory_store()
    asked = request or sweep_request(budget=Budget(num_trials=3, min_gain=0, prune_below=0))
    sweep_id = store.create_sweep(asked, now=time.time())[0].id
    sweep_worker(store, launcher, SystemClock(), owner="one", lease_s=15.0).run_once()
    return store, store.get_sweep(sweep_id)


@pytest.mark.parametrize("num_losses", [1, 2])
def test_a_trial_whose_nodes_are_lost_runs_again_under_its_number(num_losses: int) -> None:
    losses = iter(range(num_losses))
    launcher = Losing(lambda spec: spec.trial_id.endswith("0001") and next(losses, None) is not None)
    store, ended = swept(launcher)
    trials, _ = store.list_trials(ended.id)
    assert (ended.state, [one.state for one in trials]) == (RunState.COMPLETE, [TrialState.COMPLETE] * 3)
    assert [one.attempts for one in trials] == [1, num_losses + 1, 1]
    assert len(trials[1].jobs) == num_losses + 1
    notes = [event.data["note"] for event in store.events(ended.id) if event.kind == "trial.note"]
    assert notes[0] == "node2 does not answer, 2; attempt 1 of 3 is lost, and the trial queued again"
    assert [len(spec.jobs) for spec in launcher.specs if spec.trial_id.endswith("0001")] == list(range(num_losses + 1))


def test_a_trial_whose_nodes_are_lost_each_time_fails_and_says_how_the_last_ended() -> None:
    store, ended = swept(Losing(lambda spec: spec.trial_id.endswith("0001")))
    failed = store.list_trials(ended.id)[0][1]
    assert (failed.state, failed.attempts, len(failed.jobs)) == (TrialState.FAILED, 3, 3)
    assert failed.failure is not None
    assert failed.failure.kind is FailureKind.INFRASTRUCTURE
    assert failed.failure.message == (
        "its nodes were lost or never came in 3 attempts; the last time: node2 does not answer, 4"
    )


def test_a_gate_whose_nodes_are_lost_each_time_gates_nothing_and_the_sweep_ends() -> None:
    store, ended = swept(Losing(lambda spec: "-gate-" in spec.trial_id), mixed_precision_request())
    (gated,) = [one for one in store.list_trials(ended.id)[0] if one.gate]
    assert gated.gate is not None
    assert gated.gate.outcome is GateOutcome.NOT_GATED
    assert gated.gate.detail.startswith("its nodes were lost or never came in 3 attempts")
    assert gated.gate.accelerator_hours == pytest.approx(3 * gated.layout.world_size / 3600)


def test_what_a_trial_was_given_up_for_is_said_unless_its_job_goes_on() -> None:
    assert given_up(queued_trial(attempts=2)) is None
    interrupted = present(given_up(queued_trial(attempts=3)))
    assert (interrupted.kind, interrupted.message) == (
        FailureKind.INTERRUPTED,
        "interrupted 3 times; the service dies when it runs",
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
