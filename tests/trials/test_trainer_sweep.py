"""Sweeps of a registered trainer, with real processes, as a worker runs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotuner.core.choices import Precision, Recompute
from autotuner.core.cluster import LOCAL
from autotuner.core.job import Job
from autotuner.core.run import RunState, StopReason
from autotuner.core.sweep import Budget, Sweep, SweepRequest
from autotuner.core.trial import Trial, TrialState
from autotuner.launch.contract import Launcher
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.trainers.registration import RegisteredTrainer
from autotuner.runs.clock import SystemClock
from autotuner.runs.worker import Worker
from autotuner.search.space.trainers import trial_space
from autotuner.store.sql import Store, memory_store
from tests.builders import cpu_cluster, tiny_job
from tests.fake_launcher import sweep_worker
from tests.trainers.registered import registered
from tests.trials.launching import SHORT

SETTINGS = replace(SHORT, max_repeats=0)


@pytest.fixture
def store() -> Iterator[Store]:
    opened = memory_store()
    yield opened
    opened.close()


def job() -> Job:
    """Its peak was measured, so that no trial has to."""
    cluster = cpu_cluster()
    return tiny_job(cluster=replace(cluster, accelerator=replace(cluster.accelerator, peak_is_measured=True)))


def request(registration: RegisteredTrainer, *, budget: Budget | None = None, **axes: Any) -> SweepRequest:
    axes = {"micro_batch_size": (1, 2), "recompute": (Recompute.NONE,), "data_parallel_shard_degree": (1,), **axes}
    narrow = {"tensor_parallel_degree": (1,), "pipeline_parallel_degree": (1,)}
    return SweepRequest(
        job=job(),
        space=trial_space(job(), registration.trainer, axes | narrow),
        budget=budget or Budget(num_trials=20, min_gain=0.0),
        trial=SETTINGS,
        trainer=registration.trainer,
    )


def launcher(folder: Path, *registrations: RegisteredTrainer) -> Launcher:
    return Launchers({LOCAL: LocalLauncher(folder, trainers={each.trainer.name: each for each in registrations})})


def worked(store: Store, runs: Launcher, shutdown: threading.Event | None = None) -> Worker:
    return sweep_worker(store, runs, SystemClock(), owner="worker", lease_s=60.0, shutdown=shutdown)


def swept(store: Store, asked: SweepRequest, runs: Launcher) -> tuple[Sweep, list[Trial]]:
    sweep, _ = store.create_sweep(asked, now=SystemClock().now())
    assert worked(store, runs).run_once()
    return store.get_sweep(sweep.id), list(store.list_trials(sweep.id)[0])


def test_a_sweep_of_a_trainer_ends_with_a_ranking_and_its_noise_floor(store: Store, tmp_path: Path) -> None:
    registration = registered()
    sweep, trials = swept(store, request(registration), launcher(tmp_path, registration))
    assert (sweep.state, sweep.stop_reason) == (RunState.COMPLETE, StopReason.SPACE_EXHAUSTED)
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert {trial.layout.precision for trial in trials} == {Precision.FP32}
    ranking, _ = store.ranking(sweep.id)
    assert len(ranking) == len(trials) == 2
    first = min(trials, key=lambda trial: trial.number).measurement
    assert first is not None
    assert first.noise_floor is not None
    assert first.environment["trainer"] == "loop"


def test_a_worker_whose_operator_did_not_register_the_trainer_refuses_the_sweep(store: Store, tmp_path: Path) -> None:
    sweep, trials = swept(store, request(registered()), launcher(tmp_path, registered("another")))
    assert (sweep.state, sweep.stop_reason) == (RunState.FAILED, StopReason.CANNOT_RUN)
    assert "loop is not registered" in sweep.stop_detail
    assert "another" in sweep.stop_detail
    assert trials == []
