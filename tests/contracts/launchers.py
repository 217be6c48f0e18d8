"""The launchers that tests/contracts/test_launcher.py holds to their contract; a new one needs an entry here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotuner.core.cluster import LOCAL
from autotuner.core.measurement import Measurement
from autotuner.core.trial import FailureKind, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher
from autotuner.launch.devices import DevicePool
from autotuner.launch.forks import Forks
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.node_processes import NodeProcesses
from autotuner.launch.simulated import SimulatedLauncher
from tests.builders import failure, h100_cluster
from tests.contracts.held import Held
from tests.fake_launcher import FakeLauncher, plain_measurement
from tests.trainers.registered import registered
from tests.trials.launching import SHORT

__all__ = ["LAUNCHERS"]

_SHORT_LIMIT_S = 10.0
"""Below it lies the time limit of trials that are to run into it."""


def pretend(trial: TrialSpec) -> Measurement | TrialFailure:
    """What the fake does for a trial that would run, for one that is too large, and for one that would not end."""
    if trial.settings.memory_budget_bytes:
        return failure(FailureKind.OOM)
    if trial.settings.measured_steps <= SHORT.measured_steps:
        return plain_measurement(trial)
    if trial.settings.timeout_s < _SHORT_LIMIT_S:
        return failure(FailureKind.TIMEOUT)
    return plain_measurement(replace(trial, settings=SHORT))  # as far as anybody follows it


def _fake(capacity: int = 1) -> Launcher:
    return FakeLauncher(pretend, capacity=capacity)


def _service(work_dir: Path) -> Launcher:
    """What ``bootstrap`` builds, beside whatever else runs on the machine."""
    devices = DevicePool()
    return Launchers({LOCAL: LocalLauncher(work_dir, Forks(), devices)}, devices)


def _trainers(work_dir: Path) -> Launcher:
    """What ``bootstrap`` builds, for trials of a registered trainer."""
    devices, trainers = DevicePool(), {registration.trainer.name: registration for registration in (_LOOP, _LOG)}
    return Launchers({LOCAL: LocalLauncher(work_dir, Forks(), devices, trainers)}, devices)


def _four_gpus(work_dir: Path) -> Launcher:
    del work_dir
    return Launchers({LOCAL: _fake(16)}, DevicePool(lambda: tuple("0123")))


_LOOP, _LOG = registered(), registered("printed", reports="printed", LOG="1")

LAUNCHERS = {
    "fake": Held(lambda work_dir: _fake()),
    "fake-of-4": Held(lambda work_dir: _fake(4), capacity=4),
    "fake-of-16": Held(lambda work_dir: _fake(16), capacity=16),
    "repeating": Held(lambda work_dir: Launchers({LOCAL: _fake(4)}), capacity=4),
    "exclusive": Held(lambda work_dir: Launchers({LOCAL: _fake(4)}, DevicePool())),
    "exclusive-gpus": Held(_four_gpus, capacity=2, cluster=h100_cluster(num_nodes=1, accelerators_per_node=2)),
    "forked": Held(_service),
    "trainer": Held(_trainers, trainer=_LOOP),
    "trainer-by-its-log": Held(_trainers, trainer=_LOG),
    "simulated": Held(lambda work_dir: SimulatedLauncher(capacity=4), capacity=4),
    "simulated-repeating": Held(lambda work_dir: Launchers({LOCAL: SimulatedLauncher()}), capacity=16),
    "torchrun": Held(lambda work_dir: LocalLauncher(work_dir, NodeProcesses())),
}
