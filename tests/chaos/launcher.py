"""Trials whose outcome follows from their layout alone: simulated ones, and real ranks that pretend."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from autotuner.core.cluster import LOCAL, SIMULATED
from autotuner.launch.contract import Launcher
from autotuner.launch.devices import DevicePool
from autotuner.launch.forks import Forks
from autotuner.launch.launchers import Launchers
from autotuner.launch.local import LocalLauncher
from autotuner.launch.simulated import SimulatedLauncher
from autotuner.launch.simulation import Scenario
from tests.chaos.outcome import measured
from tests.fake_launcher import FakeLauncher

_RANK_TASK = "tests.chaos.rank_task:perform"
"""By its name: it needs torch, as what forks it does, and nobody else here."""

_SCENARIO = Scenario(run_noise=0.0, step_noise=0.0, start_s=0.0, queue_s=4.0, speed=400.0)
"""A trial of the jobs here takes a quarter of a second; which run of a sweep it is, changes nothing."""


def deterministic_launcher(work_dir: Path, lock_folder: Path) -> Launcher:
    """What a service runs its trials with, of the parts that any service has."""
    devices = DevicePool(lock_folder=lambda: lock_folder)
    local = LocalLauncher(work_dir, Forks(_RANK_TASK), devices)
    return Launchers({LOCAL: local, SIMULATED: SimulatedLauncher({"chaos": _SCENARIO})}, devices)


def instant_launcher() -> Launcher:
    """The same outcomes in no time: nothing is forked or waited for."""
    scenario = replace(_SCENARIO, speed=math.inf)
    return Launchers({LOCAL: FakeLauncher(measured), SIMULATED: SimulatedLauncher({"chaos": scenario})})
