"""LocalLauncher: a trial under torchrun on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import uuid4

import psutil

from autotuner.domain.cluster import Cluster
from autotuner.domain.trial import FailureKind, Measurement, Stopped, TrialFailure, TrialSpec
from autotuner.domain.wire import dumps
from autotuner.launch.detect import gpu_names
from autotuner.launch.processes import MARK, end_all, kernel_oom_kills, marked
from autotuner.launch.reports import Reports
from autotuner.launch.turn import turn
from autotuner.launch.verdict import verdict
from autotuner.ports import TrialWatcher

__all__ = ["LocalLauncher"]

_POLL_S = 0.05
_GRACE_S = 3.0
"""What a rank gets to leave after SIGTERM; gloo and torchrun were seen to need about one second."""

_STACKS_S = 0.5
"""What ranks get to write their stacks when a trial has run out of time."""


@dataclass(frozen=True, slots=True)
class _Files:
    """Where one attempt keeps its files."""

    directory: Path

    @property
    def spec(self) -> Path:
        return self.directory / "spec.json"

    @property
    def reports(self) -> Path:
        return self.directory / "reports.jsonl"

    @property
    def agent_log(self) -> Path:
        return self.directory / "torchrun.log"

    @property
    def rank_logs(self) -> Path:
        return self.directory / "ranks"


class LocalLauncher:
    """Runs trials on this machine, one rank per core or GPU, under torchrun, one trial at a time.

    Args:
        work_dir: Gets a directory per running trial, gone when the trial has ended.
    """

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir

    def refuses(self, cluster: Cluster) -> str | None:
        """A GPU cluster needs as many GPUs here as it has ranks; cores may be shared, at a price in step time."""
        if cluster.accelerator.kind == "cpu":
            return None
        num_gpus = len(gpu_names())
        if num_gpus >= cluster.world_size:
            return None
        return f"{cluster.name} has {cluster.world_size} GPUs, the machine that runs the trials has {num_gpus}"

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start torchrun, pass the trial's reports on, and say how it ended."""
        mark = f"{spec.trial_id}-{uuid4().hex[:8]}"
        files = _Files((self._work_dir / mark).absolute())
        try:
            files.rank_logs.mkdir(parents=True)
            files.spec.write_text(dumps(spec))
            with turn(watcher) as stopped:
                return stopped or _run(spec, watcher, files, mark)
        except OSError as error:  # a full disk, a work_dir that is gone: this trial failed, the next may not
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run in {self._work_dir}: {error}")
        finally:
            shutil.rmtree(files.directory, ignore_errors=True)


def _run(spec: TrialSpec, watcher: TrialWatcher, files: _Files, mark: str) -> Measurement | TrialFailure | Stopped:
    reports = Reports(files.reports)
    oom_kills = kernel_oom_kills()
    deadline = time.monotonic() + spec.settings.timeout_s
    with files.agent_log.open("wb") as log:
        agent = subprocess.Popen(
            _command(spec, files),
            env=_environment(spec, mark),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        grace_s = _GRACE_S
        try:
            ended = _follow(agent, reports, watcher, deadline)
            if ended == "timeout":
                _ask_for_stacks(mark)
            if ended == "measured":
                grace_s = 0.0  # the ranks have nothing left to say, and torchrun takes a second to notice
        finally:
            end_all(mark, grace_s=grace_s)
            agent.wait()
    if isinstance(ended, Stopped):
        return ended
    for step in reports.new_steps():
        watcher.on_step(step)
    return verdict(
        spec,
        reports,
        agent_log=files.agent_log,
        rank_logs=files.rank_logs,
        timed_out=ended == "timeout",
        oom_killed=kernel_oom_kills() > oom_kills,
    )


def _follow(
    agent: subprocess.Popen[bytes], reports: Reports, watcher: TrialWatcher, deadline: float
) -> Stopped | Literal["measured", "failed", "timeout", "exited"]:
    """Pass steps on until the result is there, the agent exits, the watcher wants a stop, or time is up."""
    while agent.poll() is None:
        for step in reports.new_steps():
            watcher.on_step(step)
        if reports.measurement:
            return "measured"
        if stopped := watcher.stop_requested():
            return stopped
        if time.monotonic() >= deadline:
            return "timeout"
        if reports.num_failures and not _peers_may_leave(reports):
            return "failed"
        time.sleep(_POLL_S)
    return "exited"


def _peers_may_leave(reports: Reports) -> bool:
    """A rank has died; the others get a moment to say what they saw, then they are ended, not waited for."""
    return time.monotonic() - reports.first_failure_at < _GRACE_S


def _ask_for_stacks(mark: str) -> None:
    """Have every rank write its Python stack to its log: that shows where a hang is."""
    for process in marked(mark):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _is_rank(process.cmdline()):
                process.send_signal(signal.SIGUSR1)
    time.sleep(_STACKS_S)


def _is_rank(command: list[str]) -> bool:
    return "--reports" in command and "trials.agent" not in command


def _command(spec: TrialSpec, files: _Files) -> list[str]:
    return [
        *(sys.executable, "-m", "trials.agent", str(os.getpid())),
        *("--standalone", "--nproc-per-node", str(spec.layout.world_size), "--max-restarts", "0"),
        *("--redirects", "3", "--log-dir", str(files.rank_logs)),
        *("-m", "trials", "--spec", str(files.spec), "--reports", str(files.reports)),
    ]


def _environment(spec: TrialSpec, mark: str) -> dict[str, str]:
    """The caller's environment, with one thread per rank and gloo on the loopback of this one machine."""
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if spec.device == "cpu":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment
