"""LocalLauncher: runs trials on the devices of this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import psutil

from autotuner.core.cluster import Cluster
from autotuner.core.errors import AutotunerError, InvalidInput
from autotuner.core.measurement import Measurement
from autotuner.core.measuring import Peak
from autotuner.core.trial import FailureKind, Outcome, Stopped, TrialFailure
from autotuner.core.trial_spec import Trainer, TrialSpec
from autotuner.core.units import format_bytes
from autotuner.launch.contract import CannotRun, Place, Starter, TrialWatcher, launcher_work
from autotuner.launch.devices import DevicePool
from autotuner.launch.follow import follow
from autotuner.launch.forks import Forks
from autotuner.launch.node_processes import NodeProcesses
from autotuner.launch.this_machine import gemm_flop_per_s, num_usable_cores
from autotuner.launch.trainers.registration import RegisteredTrainer, refuses_trainer
from autotuner.launch.work import known_peak, work_of

# Limits of this machine: ranks on its cores, weights in its memory, and files of trials on its disk.

_LEAST_FREE_BYTES = 1 << 16
"""Free bytes on the disk that the reports and the logs of a failing trial need."""

_POLL_S = 0.2

_OF_THE_PROGRAM = (FailureKind.OOM, FailureKind.NUMERICS)
"""Kinds of failure that a full disk cannot cause."""

_RANKS_PER_CORE = 16
"""Maximum number of ranks per core. Up to this, sharing a core only makes steps slower; beyond it, ranks mainly wait
for each other and the measured time says nothing about the layout."""

_FEWEST = 64
"""Number of ranks that even the smallest machine may run on its cores."""


def most_core_ranks() -> int:
    """Return the greatest number of ranks that a trial on this machine's CPU cores may have.

    Several ranks may share a core. With too many, the ranks mainly wait for each other, and the measured time says
    nothing about the layout.
    """
    return max(_FEWEST, _RANKS_PER_CORE * num_usable_cores())


def no_room(spec: TrialSpec) -> TrialFailure | None:
    """Return the failure of a CPU trial that is too large to start on this machine, or None if it may start."""
    if spec.device != "cpu":
        return None
    if spec.layout.world_size > most_core_ranks():
        message = (
            f"{spec.layout.world_size} ranks are too many: the CPU cores of this machine can run at most "
            f"{most_core_ranks()}"
        )
        return TrialFailure(kind=FailureKind.CRASH, message=message)
    has_bytes, is_whole = psutil.virtual_memory().total, not spec.settings.proxy_layers_per_stage
    needs_bytes = 4 * spec.model.num_parameters
    if spec.trainer is None and is_whole and needs_bytes > has_bytes:
        needs = f"the weights alone need {format_bytes(needs_bytes)}"
        message = f"{needs}, but this machine has {format_bytes(has_bytes)}"
        return TrialFailure(kind=FailureKind.OOM, message=message)
    return None


def says_full(failure: TrialFailure) -> bool:
    """Return True if the output of a failed trial says that a disk or a disk quota is full."""
    said = f"{failure.message}\n{failure.log_tail}".lower()
    return any(os.strerror(number).lower() in said for number in (errno.ENOSPC, errno.EDQUOT))


class DiskRoom:
    """Watches the free space on the disk of a folder, before a trial starts and while it writes there.

    Ranks on a full disk die without a message, because they cannot write a message. After their death there may be free
    space again. Therefore the disk is checked while the ranks run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._was_full = False

    def wait(self, watcher: TrialWatcher) -> Stopped | None:
        """Wait until there is enough space for a trial's files. Return None, or the watcher's reason to stop the wait.

        Raises:
            CannotRun: The folder cannot be reached.
        """
        is_told = False
        while (free_bytes := self._free_bytes()) < _LEAST_FREE_BYTES:
            if not is_told:
                left = format_bytes(free_bytes)
                watcher.on_wait(f"waits for free space on the disk of {self._folder}, which has {left} left")
                is_told = True
            if stopped := watcher.stop_requested():
                return stopped
            time.sleep(_POLL_S)
        if is_told:
            watcher.on_wait(None)
        return None

    def look(self) -> None:
        """Check the free space on the disk now. If it is full, remember that for ``if_full``."""
        self._was_full = self._was_full or self._free_bytes() < _LEAST_FREE_BYTES

    def if_full(self, failure: TrialFailure) -> Stopped | None:
        """Return ``Stopped`` if a full disk caused the failure, else None.

        A full disk is not a fault of the trial, so a stopped trial may run again.
        """
        self.look()
        says_so = says_full(failure)
        if failure.kind in _OF_THE_PROGRAM or not (self._was_full or says_so):
            return None
        where = f"no space left in {self._folder}" if self._was_full else "no space left on a disk"
        return Stopped(reason="infrastructure", detail=f"{where}: {failure.message}")

    def _free_bytes(self) -> int:
        with launcher_work():
            folder = self._folder.absolute()
            while not folder.exists():
                folder = folder.parent
            return shutil.disk_usage(folder).free


# Folders of running attempts: gone when the attempt has ended, and cleared up after launchers that were killed.

_HELD = ".held"
"""Name of the file that the launcher of a folder keeps locked (flock); the kernel releases the lock if the launcher
dies."""


@contextmanager
def work_folder(work_dir: Path, name: str) -> Iterator[Path]:
    """Create a folder for the block, and delete it afterwards. Folders of launchers that died are deleted first.

    Raises:
        OSError: The folder cannot be created.
    """
    folder = (work_dir / name).absolute()
    folder.mkdir(parents=True)
    try:
        with _locked(folder):
            _clear(folder.parent)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of this folder while the block runs.

    The lock file gets its final name only when it is locked, so that no launcher mistakes a new folder for an abandoned
    one.
    """
    making = folder / f"{_HELD}.new"
    held = os.open(making, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        making.rename(folder / _HELD)
        yield
    finally:
        os.close(held)


def _clear(work_dir: Path) -> None:
    for file in work_dir.glob(f"*/{_HELD}"):
        with contextlib.suppress(OSError):  # another launcher removes it, or its owner has just ended
            _remove_if_left(file)


def _remove_if_left(file: Path) -> None:
    found = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(file.parent, ignore_errors=True)
    finally:
        os.close(found)


class LocalLauncher:
    """The launcher that runs trials on this machine, one rank per core or GPU. Trials do not share devices.

    Args:
        work_dir: Folder that gets a subfolder for each running trial, which is deleted when the trial has ended.
        starter: Starts the ranks of the built-in transformer decoder; None: they are forked from a process that has
            imported torch.
        devices: The devices that trials run on; None: all devices, without regard to trials of other processes.
        trainers: Training programs that the operator registered, by name. A trial that names one runs it in place of
            the built-in decoder.
    """

    def __init__(
        self,
        work_dir: Path,
        starter: Starter | None = None,
        devices: DevicePool | None = None,
        trainers: Mapping[str, RegisteredTrainer] | None = None,
    ) -> None:
        self._work_dir = work_dir
        self._starter = starter or Forks()
        self._nodes = NodeProcesses()
        self._devices = devices or DevicePool()
        self._trainers = trainers or {}
        self._core_flop_per_s: float | None = None

    def refuses(self, cluster: Cluster, trainer: Trainer | None = None) -> str | None:
        """Return the reason why the trial cannot run, or None if it can.

        A reason is that the machine has too few GPUs or cores, or that the trainer is not registered. Some ranks may
        share a core, which makes their steps longer. Ranks do not share GPUs.
        """
        if trainer is not None and (refusal := refuses_trainer(self._trainers, trainer)):
            return refusal
        if cluster.accelerator.kind == "cpu":
            most = most_core_ranks()
            is_few = cluster.world_size <= most
            return (
                None
                if is_few
                else (
                    f"{cluster.name} has {cluster.world_size} ranks, but the CPU cores of this machine can run "
                    f"at most {most}"
                )
            )
        num_gpus = self._devices.num_gpus
        if num_gpus >= cluster.world_size:
            return None
        return f"{cluster.name} has {cluster.world_size} GPUs, but the machine that runs the trials has {num_gpus}"

    def capacity(self, cluster: Cluster) -> int:
        """Return how many trials can run at once: 1 on CPU cores, because trials would share their memory bandwidth.

        On GPUs, it is the number of trials that can each have their own GPUs.
        """
        return self._devices.capacity(cluster)

    def run(self, spec: TrialSpec, watcher: TrialWatcher) -> Measurement | TrialFailure | Stopped:
        """Start the ranks, pass the trial's reports to the watcher, and return the outcome.

        A trial that is too large for this machine fails before it starts. While the disk is full, the trial waits.
        """
        if failure := no_room(spec):
            return failure
        try:
            if stopped := DiskRoom(self._work_dir).wait(watcher):
                return stopped
            with self._devices.claim(spec, watcher) as devices:
                return devices if isinstance(devices, Stopped) else self._run(spec, watcher, devices)
        except CannotRun as error:  # a full disk or a missing work_dir is no failure of the trial
            return Stopped(reason="infrastructure", detail=f"cannot run in {self._work_dir}: {error}")
        except InvalidInput as error:
            return TrialFailure(kind=FailureKind.CRASH, message=f"cannot run here: {error}")

    def close(self) -> None:
        """End the processes that are kept ready between trials."""
        self._starter.close()

    def _run(self, spec: TrialSpec, watcher: TrialWatcher, devices: tuple[str, ...]) -> Outcome:
        work = work_of(spec, self._trainers, lambda: self._peak(spec))
        starter = self._starter if spec.trainer is None else self._nodes
        place = Place(
            num_nodes=1, ranks_per_node=spec.layout.world_size, variables=self._variables(spec), devices=devices
        )
        task = work.task(f"{spec.trial_id}-{uuid4().hex[:8]}", place)
        deadline = time.monotonic() + spec.settings.timeout_s + starter.slack_s
        disk = DiskRoom(self._work_dir)
        with ExitStack() as folders:
            with launcher_work():
                folder = folders.enter_context(work_folder(self._work_dir, task.job_name))
                ranks = starter.start(task, folder)
            outcome = follow(work, ranks, watcher, deadline=deadline, meanwhile=disk.look)
            return (disk.if_full(outcome) or outcome) if isinstance(outcome, TrialFailure) else outcome

    def _peak(self, spec: TrialSpec) -> Peak:
        if spec.reference_flop_per_s is None and self._core_flop_per_s is None:
            try:
                self._core_flop_per_s, _ = gemm_flop_per_s()
            except AutotunerError as error:
                raise CannotRun(f"cannot measure the cores of this machine: {error}") from error
        num_cores = min(spec.layout.world_size, num_usable_cores())
        return known_peak(spec, core_flop_per_s=self._core_flop_per_s, num_cores=num_cores)

    def _variables(self, spec: TrialSpec) -> dict[str, str]:
        """Return the variable that makes gloo use the loopback interface, unless the service names another."""
        if spec.device != "cpu":
            return {}
        name = "GLOO_SOCKET_IFNAME"
        is_passed = spec.trainer is None or name in self._trainers[spec.trainer.name].environment
        return {name: os.environ.get(name, "lo") if is_passed else "lo"}
