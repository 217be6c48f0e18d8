"""What every engine promises beyond what any launcher does: jobs that die, hang, lose nodes, wait, and are found again.

The tests run in every module that imports them and has the fixtures ``engine`` and, for those of the launcher contract,
``subject``. Of that contract one is left out: here trials are stopped while they wait, and while they run.
"""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from autotuner.core.measurement import Measurement
from autotuner.core.trial import EngineJobPhase, FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import TrialWatcher
from autotuner.launch.engines.launcher import EngineLauncher
from tests.contracts.held import HeldEngine
from tests.contracts.launcher_contract import (
    test_a_cluster_that_it_has_is_not_refused,
    test_a_launcher_runs_trials_at_once_from_as_many_threads_as_it_has_room_for_and_each_has_its_own_steps,
    test_a_trial_past_its_time_limit_comes_back_as_a_timeout,
    test_a_trial_that_died_comes_back_as_a_failure_and_raises_nothing,
    test_a_trial_that_ran_comes_back_as_its_measurement_after_all_its_steps,
    test_an_answer_or_error_of_a_watcher_passes_unchanged_and_ends_the_trial,
    test_the_engine_says_how_many_trials_it_has_room_for,
)
from tests.patience import PATIENCE_S
from tests.trials.launching import ENDLESS, SHORT, Watcher, left_over, spec

__all__ = [
    "EngineSubject",
    "test_a_cluster_that_it_has_is_not_refused",
    "test_a_hang_comes_back_as_a_timeout_that_names_the_rank",
    "test_a_job_is_found_again_by_its_stored_handle_and_not_started_twice",
    "test_a_job_whose_handle_was_never_stored_is_found_by_its_name",
    "test_a_launcher_runs_trials_at_once_from_as_many_threads_as_it_has_room_for_and_each_has_its_own_steps",
    "test_a_node_that_is_lost_says_nothing_of_the_trial",
    "test_a_rank_that_is_killed_comes_back_as_a_crash_that_names_it",
    "test_a_trial_cancelled_while_it_waits_never_runs",
    "test_a_trial_past_its_time_limit_comes_back_as_a_timeout",
    "test_a_trial_that_died_comes_back_as_a_failure_and_raises_nothing",
    "test_a_trial_that_ran_comes_back_as_its_measurement_after_all_its_steps",
    "test_an_answer_or_error_of_a_watcher_passes_unchanged_and_ends_the_trial",
    "test_steps_arrive_while_the_trial_runs",
    "test_the_engine_says_how_many_trials_it_has_room_for",
    "test_the_engine_says_who_it_is",
    "test_waiting_for_nodes_is_no_trial_time",
]

_LONG = replace(SHORT, measured_steps=300, max_measured_steps=300, measuring_budget_s=60.0, timeout_s=PATIENCE_S)
"""Goes on for seconds after its first step, and ends by itself."""

"""Longer than anything here takes, on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class EngineSubject:
    """An engine that is held to the contract, and a folder of its own."""

    held: HeldEngine
    folder: Path

    def launcher(self) -> EngineLauncher:
        """A new one: another service on the same engine."""
        return self.held.launcher(self.folder)

    def trial(self, trial_id: str, **settings: object) -> TrialSpec:
        """Two replicas on two nodes."""
        return spec(trial_id, replace(_LONG, **settings), cluster=self.held.cluster)  # type: ignore[arg-type]

    def run(self, trial: TrialSpec, watcher: TrialWatcher) -> Outcome:
        """How the trial ended, after which nothing of it is left."""
        launcher = self.launcher()
        outcome = launcher.run(trial, watcher)
        launcher.close()
        assert list(self.held.left_over(trial.trial_id)) == []
        return outcome


def ranks_of(trial_id: str) -> dict[int, psutil.Process]:
    """The trial's ranks by rank, wherever on this machine they run."""
    ranks = {}
    for process in left_over(trial_id):
        with suppress(psutil.Error):  # it has just ended
            words = process.cmdline()
            if "--reports" in words and "autotuner.trials.process.torchrun_agent" not in words:
                ranks[int(process.environ()["RANK"])] = process
    return ranks


class Once(Watcher):
    """Does something on a thread of its own at the first step, as a person beside the machine would."""

    def __init__(self, act: object) -> None:
        super().__init__(at_first_step=lambda: threading.Thread(target=act).start())  # type: ignore[arg-type]


class Leaving(Watcher):
    """Wants to leave at the first step, as a service that is shut down does."""

    def stop_requested(self) -> Stopped | None:
        return Stopped(reason="shutdown") if self.steps else None


def test_the_engine_says_who_it_is(engine: EngineSubject) -> None:
    launcher = engine.launcher()
    assert launcher.engine.check()
    launcher.close()


def test_steps_arrive_while_the_trial_runs(engine: EngineSubject) -> None:
    watcher = Watcher(stop_after=1)
    outcome = engine.run(engine.trial("engine-steps", **_endless()), watcher)
    assert outcome == Stopped(reason="cancelled")
    assert watcher.steps[0].step == 0
    assert [job.phase for job in watcher.jobs][-1] is EngineJobPhase.ENDED


def test_a_rank_that_is_killed_comes_back_as_a_crash_that_names_it(engine: EngineSubject) -> None:
    trial = engine.trial("engine-killed", **_endless())
    outcome = engine.run(trial, Once(lambda: ranks_of(trial.trial_id)[1].send_signal(signal.SIGKILL)))
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.CRASH
    assert outcome.rank == 1
    assert "SIGKILL" in outcome.message


def _hung(engine: EngineSubject, timeout_s: float) -> tuple[object, bool]:
    """How a trial ends whose rank 1 is stopped at the first step, and whether there was one."""
    trial = engine.trial(f"engine-hang-{timeout_s:g}", **_endless(timeout_s=timeout_s))
    watcher = Once(lambda: ranks_of(trial.trial_id)[1].send_signal(signal.SIGSTOP))
    return engine.run(trial, watcher), bool(watcher.steps)


def test_a_hang_comes_back_as_a_timeout_that_names_the_rank(engine: EngineSubject) -> None:
    outcome, has_begun = _hung(engine, 60.0)
    if not has_begun:  # a busy machine: its ranks import torch for longer
        outcome, _ = _hung(engine, PATIENCE_S)
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind == FailureKind.TIMEOUT
    assert outcome.rank == 1


def test_a_node_that_is_lost_says_nothing_of_the_trial(engine: EngineSubject) -> None:
    launcher = engine.launcher()
    trial = engine.trial("engine-lost", **_endless())
    watcher: Watcher = Once(lambda: engine.held.lose_node(launcher.engine, watcher.jobs[-1].handle, 1))
    outcome = launcher.run(trial, watcher)
    launcher.close()
    assert isinstance(outcome, Stopped)
    assert outcome.reason == "infrastructure"
    assert watcher.jobs[-1].phase is EngineJobPhase.LOST
    assert list(engine.held.left_over(trial.trial_id)) == []


def test_a_job_is_found_again_by_its_stored_handle_and_not_started_twice(engine: EngineSubject) -> None:
    trial = engine.trial("engine-restart")
    first, second = Leaving(), Watcher()
    left = engine.launcher()
    assert left.run(trial, first) == Stopped(reason="shutdown")
    left.close()
    outcome = engine.run(replace(trial, jobs=(first.jobs[-1],)), second)
    assert isinstance(outcome, Measurement)
    assert {job.handle for job in (*first.jobs, *second.jobs)} == {first.jobs[0].handle}
    assert second.jobs[-1].started_at == first.jobs[-1].started_at
    assert [step.step for step in second.steps] == list(range(301)), "from the first step on"


def test_a_job_whose_handle_was_never_stored_is_found_by_its_name(engine: EngineSubject) -> None:
    """Somebody ended the service between the engine's answer and the store's."""
    trial = engine.trial("engine-unstored")
    first, second = Leaving(), Watcher()
    left = engine.launcher()
    left.run(trial, first)
    left.close()
    assert isinstance(engine.run(trial, second), Measurement)
    assert second.jobs[0].handle == first.jobs[0].handle


def test_waiting_for_nodes_is_no_trial_time(engine: EngineSubject) -> None:
    """All nodes are taken by jobs that go on; one more waits longer than its time limit, and is measured then."""
    num_jobs = engine.held.num_nodes // 2
    waiting = engine.trial("engine-waits", measured_steps=2, max_measured_steps=2, timeout_s=PATIENCE_S)
    watcher = Watcher()
    with ThreadPoolExecutor(num_jobs + 1) as threads:
        busy = [_start(engine, threads, f"engine-busy-{number}-") for number in range(num_jobs)]
        outcome = threads.submit(engine.run, waiting, watcher)
        _until(lambda: bool(watcher.jobs))
        time.sleep(2.0)  # were there a node, the engine would have given it
        assert watcher.jobs[-1].phase is EngineJobPhase.QUEUED
        for stop, _ in busy:
            stop.set()
        assert isinstance(outcome.result(), Measurement)
        assert all(ended.result() == Stopped(reason="cancelled") for _, ended in busy)
    job = watcher.jobs[-1]
    assert job.queued_s(time.time()) >= 2.0
    assert job.running_s(time.time()) > 0.0


def test_a_trial_cancelled_while_it_waits_never_runs(engine: EngineSubject) -> None:
    num_jobs = engine.held.num_nodes // 2
    with ThreadPoolExecutor(num_jobs) as threads:
        busy = [_start(engine, threads, f"engine-first-{number}-") for number in range(num_jobs)]
        watcher = _StopsWhenItWaits()
        outcome = engine.run(engine.trial("engine-second"), watcher)
        assert outcome == Stopped(reason="cancelled")
        assert watcher.steps == []
        assert all(job.started_at is None for job in watcher.jobs)
        for stop, _ in busy:
            stop.set()


class _StopsWhenItWaits(Watcher):
    def stop_requested(self) -> Stopped | None:
        return Stopped(reason="cancelled") if self.jobs else None


class _UntilTold(Watcher):
    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def stop_requested(self) -> Stopped | None:
        return Stopped(reason="cancelled") if self._stop.is_set() else None


def _start(
    engine: EngineSubject, threads: ThreadPoolExecutor, trial_id: str
) -> tuple[threading.Event, Future[Outcome]]:
    """A trial that runs until the event is set; returns when it runs."""
    stop = threading.Event()
    watcher = _UntilTold(stop)
    ended = threads.submit(engine.run, engine.trial(trial_id, **_endless()), watcher)
    _until(lambda: bool(watcher.steps))
    return stop, ended


def _until(happened: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _endless(**changes: object) -> dict[str, object]:
    steps = ENDLESS.measured_steps
    return {"measured_steps": steps, "max_measured_steps": steps, "timeout_s": PATIENCE_S, **changes}
