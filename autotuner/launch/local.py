"""LocalLauncher: trials on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import structlog

from autotuner.domain.jobs.cluster import Cluster
from autotuner.domain.runs.trial import FailureKind, Measurement, Stopped, TrialFailure, TrialSpec
from autotuner.domain.wire import dumps
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.following import GRACE_S, Ending, follow
from autotuner.launch.processes import ATTEMPT_ID, ask_for_stacks, kernel_oom_kills
from autotuner.launch.ranks import CannotRun, Starter, environment, launcher_work
from autotuner.launch.reports import Reports, TrialFiles
from autotuner.launch.verdict import verdict
from autotuner.launch.zygote import Forks
from autotuner.ports import TrialWatcher

__all__ = ["LocalLauncher"]

_STACKS_S = 0.5
"""What ranks get to write their stacks when a trial has run out of time."""

_OVERTIME_S = 1.0
"""What they get to leave after that: a trial must not outlive its limit by more than five seconds, and a hung rank will
not leave anyway."""

_LEAST_FREE_BYTES = 1 << 16
"""Room for the reports and the logs of a failing trial."""

_log = structlog.get_logger(__name__)


class LocalLauncher:
    """Runs trials on this machine, one rank per core or GPU, each trial on devices of its own.

    Args:
        work_dir: Gets a directory per running trial, gone when the trial has ended.
        starter: How ranks are started; forked from processes that are kept, unless said otherwise.
        devices: What trials run on; other processes know nothing of them, unless said otherwise.
    """

    def __init__(self, work_dir: Path, starter: Starter | None = None, devices: DevicePool | None = None) -> None:
        self._work_dir = work_dir
        self._starter = starter or Forks()
        self._devices = devices or DevicePool()

    def refuses(self, cluster: Cluster) -> str | None:
        """A GPU cluster needs as many GPUs here as it has ranks; cores may be shared, at a price in step time."""
        if cluster.accelerator.kind == "cpu":
            return None
        num_gpus = self._devices.num_gpus
        if num_gpus >= cluster.world_size:
            return None
        return f"{cluster.name} has {cluster.world_size} GPUs, the machine that runs the trials has {num_gpus}"

    def capacity(self, cluster: Cluster) -> int:
        """One trial on cores, which share caches and memory's bandwidth; on GPUs as many as find their own."""
        return self._devices.capacity(cluster)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the ranks, pass the trial's reports on, and say how it ended."""
        try:
            with self._devices.claim(spec, watcher) as devices:
                return devices if isinstance(devices, Stopped) else self._run(spec, watcher, devices)
        except CannotRun as error:  # a full disk, a work_dir that is gone: this trial failed, the next may not
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run in {self._work_dir}: {error}")

    def close(self) -> None:
        """Release what is kept from one trial to the next."""
        self._starter.close()

    def _run(
        self, spec: TrialSpec, watcher: TrialWatcher, devices: Sequence[str]
    ) -> Measurement | TrialFailure | Stopped:
        attempt_id = f"{spec.trial_id}-{uuid4().hex[:8]}"
        files = TrialFiles((self._work_dir / attempt_id).absolute())
        try:
            with launcher_work():
                files.rank_logs.mkdir(parents=True)
                files.spec.write_text(dumps(spec))
            return self._attempt(spec, watcher, files, environment(spec, attempt_id, devices))
        finally:
            shutil.rmtree(files.directory, ignore_errors=True)

    def _attempt(
        self, spec: TrialSpec, watcher: TrialWatcher, files: TrialFiles, variables: Mapping[str, str]
    ) -> Measurement | TrialFailure | Stopped:
        reports = Reports(files.reports)
        oom_kills = kernel_oom_kills()
        deadline = time.monotonic() + spec.settings.timeout_s
        with launcher_work():
            ranks = self._starter.start(spec, files, variables)
        grace_s = GRACE_S
        try:
            ending = follow(spec, ranks, reports, watcher, deadline=deadline)
            grace_s = _prepare_end(ending, variables[ATTEMPT_ID])
        finally:
            stuck = ranks.end(grace_s=grace_s)
            if stuck:
                _log.error("launcher.processes_stuck", trial=spec.trial_id, pids=stuck)
        if isinstance(ending, Stopped):
            return ending
        with launcher_work():
            last_steps = reports.new_steps()
        for step in last_steps:
            watcher.on_step(step)
        with launcher_work():
            outcome = verdict(
                spec,
                reports,
                ranks,
                rank_logs=files.read_rank_logs(),
                timed_out=ending == "timeout",
                oom_killed=kernel_oom_kills() > oom_kills,
            )
            return outcome if isinstance(outcome, Measurement) else _with_stuck(self._or_full_disk(outcome), stuck)

    def _or_full_disk(self, failure: TrialFailure) -> TrialFailure:
        """On a full disk ranks die without a word: they could not write it."""
        is_full = shutil.disk_usage(self._work_dir).free < _LEAST_FREE_BYTES
        if failure.kind == FailureKind.CRASH and is_full:
            return replace(failure, message=f"{failure.message}; no space left in {self._work_dir}")
        return failure


def _prepare_end(ending: Ending, attempt_id: str) -> float:
    """Seconds that the ranks get to leave; those that have run out of time say before where they are."""
    match ending:
        case "measured":
            return 0.0  # the ranks have nothing left to say
        case "timeout":
            ask_for_stacks(attempt_id)
            time.sleep(_STACKS_S)
            return _OVERTIME_S
        case _:
            return GRACE_S


def _with_stuck(failure: TrialFailure, pids: Sequence[int]) -> TrialFailure:
    """The failure, with the processes that hold the device still."""
    if not pids:
        return failure
    listed = ", ".join(map(str, pids))
    return replace(failure, message=f"{failure.message}; SIGKILL did not end process {listed}")
