"""LocalLauncher: trials on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import structlog

from autotuner.core.cluster import Cluster
from autotuner.core.codec import dumps
from autotuner.core.errors import AutotunerError
from autotuner.core.measurement import Measurement
from autotuner.core.measuring import Peak
from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.host.keeper import kernel_oom_kills
from autotuner.launch.attempts import Attempt, DecoderAttempt
from autotuner.launch.detect import num_usable_cores
from autotuner.launch.exclusive import DevicePool
from autotuner.launch.following import GRACE_S, follow, pass_on
from autotuner.launch.ranks import CannotRun, Ranks, Starter, environment, launcher_work
from autotuner.launch.reports import TrialFiles
from autotuner.launch.room import DiskRoom, most_core_ranks, no_room
from autotuner.launch.torch_jobs import gemm_flop_per_s
from autotuner.launch.trainers.attempt import TrainerAttempt
from autotuner.launch.trainers.registration import Registration, refuses_trainer
from autotuner.launch.work_folder import work_folder
from autotuner.launch.zygote import Forks
from autotuner.ports import TrialWatcher

_log = structlog.get_logger(__name__)


class LocalLauncher:
    """Runs trials on this machine, one rank per core or GPU, each trial on devices of its own.

    Args:
        work_dir: Gets a directory per running trial, gone when the trial has ended.
        starter: How ranks are started; forked from processes that are kept, unless said otherwise.
        devices: What trials run on; other processes know nothing of them, unless said otherwise.
        trainers: What runs in place of our own decoder where a trial says so, by name.
    """

    def __init__(
        self,
        work_dir: Path,
        starter: Starter | None = None,
        devices: DevicePool | None = None,
        trainers: Mapping[str, Registration] | None = None,
    ) -> None:
        self._work_dir = work_dir
        self._starter = starter or Forks()
        self._devices = devices or DevicePool()
        self._trainers = trainers or {}
        self._core_flop_per_s: float | None = None

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """A GPU cluster needs as many GPUs here as it has ranks; cores may be shared by some, at a price in step time.

        A trainer has to be registered here as the sweep knows it.
        """
        if trainer is not None and (refusal := refuses_trainer(self._trainers, trainer)):
            return refusal
        if cluster.accelerator.kind == "cpu":
            most = most_core_ranks()
            is_few = cluster.world_size <= most
            return (
                None if is_few else f"{cluster.name} has {cluster.world_size} ranks, these cores share {most} at most"
            )
        num_gpus = self._devices.num_gpus
        if num_gpus >= cluster.world_size:
            return None
        return f"{cluster.name} has {cluster.world_size} GPUs, the machine that runs the trials has {num_gpus}"

    def capacity(self, cluster: Cluster) -> int:
        """One trial on cores, which share caches and memory's bandwidth; on GPUs as many as find their own."""
        return self._devices.capacity(cluster)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the ranks, pass the trial's reports on, and say how it ended; without one that has no room here.

        While the disk is full, the trial waits.
        """
        if failure := no_room(spec):
            return failure
        try:
            if stopped := DiskRoom(self._work_dir).wait(watcher):
                return stopped
            with self._devices.claim(spec, watcher) as devices:
                return devices if isinstance(devices, Stopped) else self._run(spec, watcher, devices)
        except CannotRun as error:  # a disk that fills up, a work_dir that is gone: that says nothing of the trial
            return Stopped(reason="infrastructure", detail=f"cannot run in {self._work_dir}: {error}")

    def close(self) -> None:
        """Release what is kept from one trial to the next."""
        self._starter.close()

    def _run(
        self, spec: TrialSpec, watcher: TrialWatcher, devices: Sequence[str]
    ) -> Measurement | TrialFailure | Stopped:
        attempt_id = f"{spec.trial_id}-{uuid4().hex[:8]}"
        with ExitStack() as folders:
            with launcher_work():
                files = TrialFiles(folders.enter_context(work_folder(self._work_dir, attempt_id)))
                files.rank_logs.mkdir()
                files.spec.write_text(dumps(spec))
            return self._followed(spec, watcher, self._attempt(spec, files, attempt_id, devices))

    def _attempt(self, spec: TrialSpec, files: TrialFiles, attempt_id: str, devices: Sequence[str]) -> Attempt:
        if spec.trainer is None:
            return DecoderAttempt(spec, files, self._starter, environment(spec, attempt_id, devices))
        if refusal := refuses_trainer(self._trainers, spec.trainer):
            raise CannotRun(refusal)
        registered, peak = self._trainers[spec.trainer.name], self._peak(spec)
        return TrainerAttempt(registered, spec, files, attempt_id=attempt_id, devices=devices, peak=peak)

    def _followed(
        self, spec: TrialSpec, watcher: TrialWatcher, attempt: Attempt
    ) -> Measurement | TrialFailure | Stopped:
        oom_kills = kernel_oom_kills()
        deadline = time.monotonic() + spec.settings.timeout_s
        with launcher_work():
            ranks = attempt.start()
        grace_s = GRACE_S
        disk = DiskRoom(self._work_dir)
        try:
            ending = follow(
                spec,
                ranks,
                attempt.reports,
                watcher,
                deadline=deadline,
                peers_s=attempt.peers_s,
                meanwhile=disk.look,
            )
            grace_s = attempt.grace_s(ending)
        finally:
            stuck = ranks.end(grace_s=grace_s)
            if stuck:
                _log.error("launcher.processes_stuck", trial_id=spec.trial_id, pids=stuck)
        if isinstance(ending, Stopped):
            return ending
        with launcher_work():
            last_steps = attempt.last_steps()
        pass_on(last_steps, attempt.reports, watcher)
        with launcher_work():
            oom_killed = kernel_oom_kills() > oom_kills
            outcome = attempt.judge(timed_out=ending == "timeout", oom_killed=oom_killed)
            if isinstance(outcome, Measurement):
                return outcome
            return _if_killed(outcome, ranks) or disk.if_full(outcome) or _with_stuck(outcome, stuck)

    def _peak(self, spec: TrialSpec) -> Peak:
        """What MFU of a trainer's trial is a share of; a rate of cores that nobody knows yet is measured, once."""
        num_ranks, reference = spec.layout.world_size, spec.reference_flop_per_s
        precision = spec.precision_flop_per_s and spec.precision_flop_per_s * num_ranks
        num_cores = min(num_ranks, num_usable_cores())
        source = f"measured GEMM rate of {num_cores} cores" if spec.device == "cpu" else "data sheet"
        if reference is not None:
            return Peak(flop_per_s=reference * num_ranks, source=source, precision_flop_per_s=precision)
        if self._core_flop_per_s is None:
            try:
                self._core_flop_per_s, _ = gemm_flop_per_s()
            except AutotunerError as error:
                raise CannotRun(f"cannot measure this machine's cores: {error}") from error
        return Peak(flop_per_s=self._core_flop_per_s * num_cores, source=source)


def _if_killed(failure: TrialFailure, ranks: Ranks) -> Stopped | None:
    """Where somebody killed a rank, or whoever forked it, that says nothing of the trial, which may be run again.

    A rank cannot end itself by SIGKILL, and where the kernel did for want of memory, the failure says so.
    """
    of_rank = [death.exit_code for death in ranks.deaths() if death.rank == failure.rank]
    if failure.kind is FailureKind.CRASH and of_rank == [-signal.SIGKILL]:
        return Stopped(reason="infrastructure", detail=failure.message)
    return None


def _with_stuck(failure: TrialFailure, pids: Sequence[int]) -> TrialFailure:
    """The failure, with the processes that hold the device still."""
    if not pids:
        return failure
    listed = ", ".join(map(str, pids))
    return replace(failure, message=f"{failure.message}; SIGKILL did not end process {listed}")
