"""Launchers and engines as the contract suites need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import psutil

from autotuner.core.cluster import Cluster
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import Launcher
from autotuner.launch.engines.engine import Engine
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.registration import EngineRegistration, read_engines
from autotuner.launch.launchers import Launchers
from autotuner.launch.node_processes import processes_of
from autotuner.launch.trainers.registration import RegisteredTrainer
from tests.builders import cpu_cluster
from tests.trainers.registered import by_trainer
from tests.trials.launching import left_over

__all__ = ["PROCESSES", "Held", "HeldEngine", "held_launcher"]


@dataclass(frozen=True, slots=True)
class Held:
    """A launcher as the contract suite needs it."""

    make: Callable[[Path], Launcher]
    """A new one, with a directory of its own."""
    capacity: int = 1
    """How many trials on ``cluster`` it should have room for."""
    cluster: Cluster = field(default_factory=cpu_cluster)
    """One of two ranks that it runs trials on."""
    left_over: Callable[[str], Sequence[object]] = left_over
    """The processes that are left of a trial with that id, wherever this launcher starts them."""
    trainer: RegisteredTrainer | None = None
    """What runs its trials; None: our own decoder."""

    def trial(self, trial: TrialSpec) -> TrialSpec:
        """That trial on this launcher's kind of device."""
        if self.trainer is not None:
            trial = by_trainer(trial, self.trainer)
        device: Literal["cpu", "cuda"] = "cpu" if self.cluster.accelerator.kind == "cpu" else "cuda"
        return replace(trial, device=device, cluster=self.cluster)


@dataclass(frozen=True, slots=True)
class HeldEngine:
    """An engine as its contract suite needs it."""

    registered: Callable[[Path], str]
    """Its table in an operator's file, for an engine that keeps what it keeps in that folder."""
    lose_node: Callable[[Engine, str, int], None]
    """Takes a node of a running job away, as a power cut would."""
    capacity: int = 1
    """Jobs that the operator lets wait or run at once."""
    num_nodes: int = 2
    """Nodes that there are, of one rank each; two of them run a job."""
    left_over: Callable[[str], Sequence[object]] = left_over
    """What is left of a trial with that id, wherever the engine starts its processes."""
    trainers: dict[str, RegisteredTrainer] = field(default_factory=dict)
    """What may run in place of our own decoder."""

    @property
    def cluster(self) -> Cluster:
        """Two nodes of one rank each."""
        return replace(cpu_cluster(num_nodes=2, accelerators_per_node=1), engine="held")

    def registration(self, folder: Path) -> EngineRegistration:
        """Read from a file, as an operator's is."""
        path = folder / "engines.toml"
        path.write_text(f"[held]\nmax_parallel_trials = {self.capacity}\n{self.registered(folder)}")
        return read_engines(path)["held"]

    def launcher(self, folder: Path) -> EngineLauncher:
        """A new one, which finds the jobs that others started from the same folder."""
        return EngineLauncher(self.registration(folder), self.trainers)


def held_launcher(engine: HeldEngine) -> Held:
    """The launcher of an engine, as the service builds it."""
    return Held(
        lambda folder: Launchers({"held": engine.launcher(folder)}),
        capacity=engine.capacity,
        cluster=engine.cluster,
        left_over=engine.left_over,
    )


def _lose_process(engine: Engine, handle: str, node_rank: int) -> None:
    """Kill a node with all below it, as a power cut would."""
    del engine
    for process in processes_of(handle):
        if ["--node-rank", str(node_rank)] == process.cmdline()[-6:-4]:
            for gone in (*process.children(recursive=True), process):
                with suppress(psutil.NoSuchProcess):
                    gone.kill()


PROCESSES = HeldEngine(
    lambda folder: f'kind = "processes"\nfolder = "{folder / "jobs"}"\npoll_s = 0.1\n',
    lose_node=_lose_process,
)
