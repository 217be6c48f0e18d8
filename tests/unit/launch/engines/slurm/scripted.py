"""Slurm's commands, answered from a script: what a controller would list, and what sbatch would say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotuner.core.trial_spec import NodeTask
from autotuner.launch.engines.engine import EngineUnavailable, JobOrder
from autotuner.launch.engines.slurm import SlurmEngine
from autotuner.launch.engines.slurm_commands import CommandFailed
from autotuner.launch.engines.slurm_job import SlurmSettings
from tests.builders import cpu_cluster
from tests.trials.launching import spec

NAME = "t-17-0-0"


class ScriptedSlurm:
    """Answers like Slurm's programs, and remembers what it was asked.

    Attributes:
        asked: Every command so far.
        listed: Lines of squeue.
        accounted: What sacct prints; None: there is no accounting.
        nodes: Lines of sinfo about nodes.
        failing: What a program says instead, by its name: an exception to raise.
        at_sbatch: Called before sbatch answers.
        federation: What sbatch prints behind a job's number.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.listed: list[str] = []
        self.accounted: str | None = None
        self.nodes: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.at_sbatch: Callable[[], None] = lambda: None
        self.federation = ""
        self._number = 40

    def __call__(self, program: str, *arguments: str) -> str:
        self.asked.append((program, *arguments))
        if program in self.failing:
            raise self.failing[program]
        match program:
            case "sbatch":
                self._number += 1
                self.list_as(self._number, "PENDING", "Priority")
                self.at_sbatch()
                return f"{self._number}{self.federation}\n"
            case "squeue":
                return "".join(f"{line}\n" for line in self.listed)
            case "sacct" if self.accounted is None:
                raise CommandFailed("sacct: Slurm accounting storage is disabled")
            case "sacct":
                return self.accounted or ""
            case "sinfo" if "--version" in arguments:
                return "slurm 24.11.1\n"
            case "sinfo":
                return "".join(f"{line}\n" for line in self.nodes)
            case "sacctmgr":
                return "ml|normal,high\n"
            case "scancel":
                self.listed = []
                return ""
        raise AssertionError(f"nobody knows {program}")

    def list_as(self, number: int, state: str, reason: str = "None", nodes: str = "", name: str = NAME) -> None:
        """Have squeue list that job so, in the place of what it said of it."""
        kept = [line for line in self.listed if not line.startswith(f"{number}|")]
        self.listed = [*kept, f"{number}|{state}|{reason}|{nodes}|{name}"]

    def asked_of(self, program: str) -> list[tuple[str, ...]]:
        """The commands of that program."""
        return [command for command in self.asked if command[0] == program]

    def goes_away(self) -> None:
        """No command reaches the controller any more."""
        error = EngineUnavailable("Unable to contact slurm controller (connect failure)")
        self.failing = dict.fromkeys(("sbatch", "squeue", "sinfo", "scancel", "sacct"), error)


def engine(shared: Path, slurm: ScriptedSlurm, *, fresh_s: float = 0.0, **settings: Any) -> SlurmEngine:
    """An engine whose commands are scripted."""
    return SlurmEngine("cluster", SlurmSettings(shared=str(shared), **settings), slurm, fresh_s=fresh_s)


def order(name: str = NAME, *, queue: str = "", num_nodes: int = 2) -> JobOrder:
    """A trial on two nodes of two cores."""
    trial = spec("scripted")
    cluster = cpu_cluster(num_nodes=num_nodes, accelerators_per_node=2, engine="cluster", queue=queue)
    task = NodeTask(job_name=name, num_nodes=num_nodes, ranks_per_node=2, time_limit_s=60.0, spec=trial)
    return JobOrder(name=name, cluster=cluster, task=task, time_limit_s=90.0)
