"""What a trial costs beyond its steps on each engine that can be had: from submission to first step, and in all.

``python -m bench.engine_overhead [REPETITIONS] [ENGINES.toml]`` runs the same two ranks of a small Llama on cores: on
this machine, forked from a zygote and under torchrun; on two processes as nodes; and on two nodes of one core each of every
engine that the file registers (by default that of ``AUTOTUNER_ENGINES``), which have to be there. The first trial on
each is cold (imports from a cold disk, a zygote that starts, workers that an engine starts), the others are warm; they
take turns, so that the load of the machine is the same for all. Printed of each, medians with their range: seconds
until the engine gave it nodes, until its first step was heard of, from the last step to the outcome, and all that was
no step.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autotuner.catalog.hardware import load_cluster
from autotuner.core.cluster import Cluster
from autotuner.core.measurement import FinishedRun, LinkEvent, Measurement, StepReport
from autotuner.core.trial import EngineJob, EngineJobPhase, Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_seconds
from autotuner.launch.contract import Launcher
from autotuner.launch.engines.launcher import EngineLauncher
from autotuner.launch.engines.registration import read_engines
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.local import LocalLauncher
from autotuner.launch.torchrun import Torchrun
from autotuner.launch.zygote import Forks
from bench.trial_overhead import trial

_REPETITIONS = 5

_WIDTH = 190
"""Of the table, wherever it is printed: a line of a report."""

_PROCESSES = """
[processes]
kind = "processes"
folder = "{folder}"
num_nodes = 2
poll_s = 0.2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """One trial as whoever launched it saw it, in seconds."""

    queued_s: float
    """Until it was seen to have its nodes; 0 on this machine."""
    first_step_s: float
    """Until its first step was heard of, that step included."""
    steps_s: float
    """Of all its steps."""
    stop_s: float
    """From the last step to the outcome."""
    wall_s: float
    """All of it."""

    @property
    def overhead_s(self) -> float:
        """What was no step."""
        return self.wall_s - self.steps_s


class _Watch:
    """A watcher that notes when it heard of what."""

    def __init__(self) -> None:
        self.began_at = time.perf_counter()
        self.placed_at: float | None = None
        self.heard_at: list[float] = []
        self.steps_s = 0.0

    def on_step(self, step: StepReport) -> None:
        self.heard_at.append(time.perf_counter())
        self.steps_s += step.step_time_s

    def on_link_event(self, event: LinkEvent) -> None:
        pass

    def on_note(self, note: str) -> None:
        pass

    def on_wait(self, reason: str | None) -> None:
        pass

    def on_run(self, run: FinishedRun) -> None:
        pass

    def on_job(self, job: EngineJob) -> None:
        if self.placed_at is None and job.phase is not EngineJobPhase.QUEUED:
            self.placed_at = time.perf_counter()

    def stop_requested(self) -> Stopped | None:
        return None


def launched(spec: TrialSpec, launcher: Launcher) -> Launched:
    """Run it once.

    Raises:
        RuntimeError: It was not measured.
    """
    watch = _Watch()
    outcome = launcher.run(spec, watch)
    ended_at = time.perf_counter()
    if not isinstance(outcome, Measurement):
        raise RuntimeError(str(outcome))
    return Launched(
        queued_s=0.0 if watch.placed_at is None else watch.placed_at - watch.began_at,
        first_step_s=watch.heard_at[0] - watch.began_at,
        steps_s=watch.steps_s,
        stop_s=ended_at - watch.heard_at[-1],
        wall_s=ended_at - watch.began_at,
    )


def ways(folder: Path, registered: Path | None) -> Mapping[str, tuple[Launcher, Cluster | None]]:
    """Every launcher that is to be had, by name, and the cluster that its trials name."""
    devices = DevicePool.of_this_machine()
    nodes = folder / "engines.toml"
    nodes.write_text(_PROCESSES.format(folder=folder / "jobs"))
    known: dict[str, tuple[Launcher, Cluster | None]] = {
        "local, forked": (LocalLauncher(folder, Forks(), devices), None),
        "local, torchrun": (LocalLauncher(folder, Torchrun(), devices), None),
    }
    for path in (nodes, *([registered] if registered else [])):
        for name, registration in read_engines(path).items():
            pair = replace(load_cluster("cpu:2"), num_nodes=2, accelerators_per_node=1, engine=name)
            known[name] = EngineLauncher(registration, folder / name), pair
    return known


def main(arguments: Sequence[str]) -> None:
    """Print a row for each."""
    repetitions = int(arguments[0]) if arguments else _REPETITIONS
    file = arguments[1] if len(arguments) > 1 else os.environ.get("AUTOTUNER_ENGINES", "")
    with tempfile.TemporaryDirectory() as directory:
        known = ways(Path(directory), Path(file) if file else None)
        runs: dict[str, list[Launched]] = {name: [] for name in known}
        for repetition in range(repetitions + 1):
            for name, (launcher, cluster) in known.items():
                spec = replace(
                    trial(profiled_steps=0), trial_id=f"overhead-{os.getpid()}-{repetition}", cluster=cluster
                )
                runs[name].append(launched(spec, launcher))
        for launcher, _ in known.values():
            launcher.close()
    Console(width=_WIDTH).print(_table(runs))


_COLUMNS: Mapping[str, Callable[[Launched], float]] = {
    "nodes after": lambda run: run.queued_s,
    "first step after": lambda run: run.first_step_s,
    "last step to outcome": lambda run: run.stop_s,
    "beyond steps": lambda run: run.overhead_s,
}


def _table(runs: Mapping[str, Sequence[Launched]]) -> Table:
    repetitions = len(next(iter(runs.values()))) - 1
    table = Table(title=f"{repetitions} warm trials on each, {_steps(runs)} of steps")
    table.add_column("engine")
    for column in ("first step, cold", "beyond steps, cold", *_COLUMNS):
        table.add_column(column, justify="right")
    for name, (cold, *warm) in runs.items():
        cells = (_spread([of(run) for run in warm]) for of in _COLUMNS.values())
        table.add_row(name, format_seconds(cold.first_step_s), format_seconds(cold.overhead_s), *cells)
    return table


def _steps(runs: Mapping[str, Sequence[Launched]]) -> str:
    return format_seconds(statistics.median(run.steps_s for of_engine in runs.values() for run in of_engine))


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    lowest, middle, highest = min(seconds), statistics.median(seconds), max(seconds)
    return f"{format_seconds(middle)} ({format_seconds(lowest)} .. {format_seconds(highest)})"


if __name__ == "__main__":
    main(sys.argv[1:])
