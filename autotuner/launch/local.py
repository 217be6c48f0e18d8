"""LocalLauncher: trials on this machine, one at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

import structlog

from autotuner.domain.cluster import Cluster
from autotuner.domain.trial import FailureKind, Measurement, StepReport, Stopped, TrialFailure, TrialSpec
from autotuner.domain.wire import dumps
from autotuner.launch.detect import gpu_names
from autotuner.launch.files import TrialFiles
from autotuner.launch.forks import Forks
from autotuner.launch.processes import ask_for_stacks, kernel_oom_kills
from autotuner.launch.ranks import Ranks, Starter
from autotuner.launch.reports import Reports
from autotuner.launch.verdict import is_complete, verdict
from autotuner.ports import TrialWatcher

__all__ = ["LocalLauncher"]

_POLL_S = 0.05
_GRACE_S = 3.0
"""What a rank gets to leave after SIGTERM, or to say what it saw of a peer's death; gloo and torchrun were seen to need
about one second."""

_STACKS_S = 0.5
"""What ranks get to write their stacks when a trial has run out of time."""

_OVERTIME_S = 1.0
"""What they get to leave after that: a trial must not outlive its limit by more than five seconds, and a hung rank will
not leave anyway."""

_LEAST_FREE_BYTES = 1 << 16
"""Room for the reports and the logs of a failing trial."""

_log = structlog.get_logger(__name__)


class LocalLauncher:
    """Runs trials on this machine, one rank per core or GPU; for trials of others there is ``PatientLauncher``.

    Args:
        work_dir: Gets a directory per running trial, gone when the trial has ended.
        starter: How ranks are started; forked from a process that is kept, unless said otherwise.
    """

    def __init__(self, work_dir: Path, starter: Starter | None = None) -> None:
        self._work_dir = work_dir
        self._starter = starter or Forks()

    def refuses(self, cluster: Cluster) -> str | None:
        """A GPU cluster needs as many GPUs here as it has ranks; cores may be shared, at a price in step time."""
        if cluster.accelerator.kind == "cpu":
            return None
        num_gpus = len(gpu_names())
        if num_gpus >= cluster.world_size:
            return None
        return f"{cluster.name} has {cluster.world_size} GPUs, the machine that runs the trials has {num_gpus}"

    def capacity(self, cluster: Cluster) -> int:
        """One trial on cores, which share caches and memory's bandwidth; on GPUs as many as find their own."""
        return 1 if cluster.accelerator.kind == "cpu" else max(1, len(gpu_names()) // cluster.world_size)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the ranks, pass the trial's reports on, and say how it ended."""
        mark = f"{spec.trial_id}-{uuid4().hex[:8]}"
        files = TrialFiles((self._work_dir / mark).absolute())
        heard = _Heard(watcher)
        try:
            files.rank_logs.mkdir(parents=True)
            files.spec.write_text(dumps(spec))
            return self._run(spec, heard, files, mark)
        except OSError as error:
            if error is heard.error:
                raise
            # a full disk, a work_dir that is gone: this trial failed, the next may not
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run in {self._work_dir}: {error}")
        finally:
            shutil.rmtree(files.directory, ignore_errors=True)

    def close(self) -> None:
        """Release what is kept from one trial to the next."""
        self._starter.close()

    def _run(
        self, spec: TrialSpec, watcher: TrialWatcher, files: TrialFiles, mark: str
    ) -> Measurement | TrialFailure | Stopped:
        reports = Reports(files.reports)
        oom_kills = kernel_oom_kills()
        deadline = time.monotonic() + spec.settings.timeout_s
        ranks = self._starter.start(spec, files, mark)
        grace_s = _GRACE_S
        try:
            ended = _follow(spec, ranks, reports, watcher, deadline)
            if ended == "timeout":
                ask_for_stacks(mark)
                time.sleep(_STACKS_S)
                grace_s = _OVERTIME_S
            if ended == "measured":
                grace_s = 0.0  # the ranks have nothing left to say
        finally:
            stuck = ranks.end(grace_s=grace_s)
            if stuck:
                _log.error("launcher.processes_stuck", trial=spec.trial_id, pids=stuck)
        if isinstance(ended, Stopped):
            return ended
        for step in reports.new_steps():
            watcher.on_step(step)
        outcome = verdict(
            spec,
            reports,
            ranks,
            rank_logs=files.rank_logs,
            timed_out=ended == "timeout",
            oom_killed=kernel_oom_kills() > oom_kills,
        )
        if isinstance(outcome, Measurement):
            return outcome
        return _with_stuck(self._or_full_disk(outcome), stuck)

    def _or_full_disk(self, failure: TrialFailure) -> TrialFailure:
        """On a full disk ranks die without a word: they could not write it."""
        is_full = shutil.disk_usage(self._work_dir).free < _LEAST_FREE_BYTES
        if failure.kind == FailureKind.CRASH and is_full:
            return replace(failure, message=f"{failure.message}; no space left in {self._work_dir}")
        return failure


def _with_stuck(failure: TrialFailure, pids: Sequence[int]) -> TrialFailure:
    """The failure, with the processes that hold the device still."""
    if not pids:
        return failure
    listed = ", ".join(map(str, pids))
    return replace(failure, message=f"{failure.message}; SIGKILL did not end process {listed}")


class _Heard:
    """A watcher whose own trouble can be told from the launcher's.

    Attributes:
        error: What the watcher raised last.
    """

    def __init__(self, watcher: TrialWatcher) -> None:
        self._watcher = watcher
        self.error: Exception | None = None

    def on_step(self, step: StepReport) -> None:
        with self._remembering():
            self._watcher.on_step(step)

    def on_note(self, note: str) -> None:
        with self._remembering():
            self._watcher.on_note(note)

    def stop_requested(self) -> Stopped | None:
        with self._remembering():
            return self._watcher.stop_requested()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.error = error
            raise


def _follow(
    spec: TrialSpec, ranks: Ranks, reports: Reports, watcher: TrialWatcher, deadline: float
) -> Stopped | Literal["measured", "failed", "timeout", "ended"]:
    """Pass steps on until the whole result is there, the ranks are gone, the watcher wants a stop, or time is up."""
    peers_leave_by = float("inf")
    while not ranks.ended():
        for step in reports.new_steps():
            watcher.on_step(step)
        if is_complete(spec, reports):
            return "measured"
        if stopped := watcher.stop_requested():
            return stopped
        now = time.monotonic()
        if now >= deadline:
            return "timeout"
        if reports.failures or ranks.deaths():  # the others may say what they saw, then they are ended
            peers_leave_by = min(peers_leave_by, now + _GRACE_S)
        if now >= peers_leave_by:
            return "failed"
        time.sleep(_POLL_S)
    return "ended"
