"""Reserves the devices of this machine: each device runs one trial at a time, since two would disturb each other."""

from __future__ import annotations

import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from autotuner.core.cluster import Cluster
from autotuner.core.trial import Stopped
from autotuner.core.trial_spec import TrialSpec
from autotuner.launch.contract import CannotRun, TrialWatcher, launcher_work
from autotuner.launch.this_machine import visible_gpus

CORES = "cpu"
"""Name of the single device that all CPU cores form: trials on different cores share caches and memory bandwidth."""

_POLL_S = 0.2

_HOLDER = ".pid"
"""Suffix of the file beside a lock file that names the process that holds the lock."""


class DevicePool:
    """The devices of this machine: each GPU is a device, and all CPU cores together are one. A device runs one trial.

    Args:
        gpus: Returns the names of the GPUs, in the form of ``CUDA_VISIBLE_DEVICES``.
        lock_folder: Returns the folder with a lock file for each device, so that processes with the same folder do not
            use the same device. The kernel releases such a lock (flock) when its holder ends. None: only the trials of
            this pool are kept apart.
    """

    def __init__(
        self, gpus: Callable[[], Sequence[str]] = visible_gpus, *, lock_folder: Callable[[], Path] | None = None
    ) -> None:
        self._find_gpus = gpus
        self._found_gpus: tuple[str, ...] = ()
        self._lock_folder = lock_folder
        self._mutex = threading.Lock()
        self._taken: dict[str, FileLock | None] = {}
        self._claims: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of_this_machine(cls) -> DevicePool:
        """Return a pool that shares the devices of this machine with the pools of all other launchers of this user."""
        return cls(lock_folder=_lock_folder)

    def capacity(self, cluster: Cluster) -> int:
        """Return how many trials on a cluster of this size can each have their own devices at once; at least 1."""
        if cluster.accelerator.kind == "cpu":
            return 1
        return max(1, self.num_gpus // cluster.world_size)

    @property
    def num_gpus(self) -> int:
        """Return the number of GPUs of this machine, in use or not."""
        return len(self._gpus())

    def _gpus(self) -> tuple[str, ...]:
        """Return the GPUs of this machine; once the driver has listed some, it is not asked again."""
        self._found_gpus = self._found_gpus or tuple(self._find_gpus())
        return self._found_gpus

    @contextmanager
    def claim(self, spec: TrialSpec, watcher: TrialWatcher) -> Iterator[tuple[str, ...] | Stopped]:
        """Wait until devices for the ranks of a trial are free, and hold them until the block ends.

        If the same trial makes a claim inside another claim, it gets the same devices. If a trial has more ranks than
        the machine has GPUs, it gets all GPUs.

        Returns:
            Names of the devices, or the watcher's reason to stop, if the watcher asked for a stop during the wait.

        Raises:
            CannotRun: The lock files cannot be created.
        """
        if inherited := self._claims.get(spec.trial_id):
            yield inherited
            return
        devices = self._wait(spec, watcher)
        if isinstance(devices, Stopped):
            yield devices
            return
        self._claims[spec.trial_id] = devices
        try:
            yield devices
        finally:
            del self._claims[spec.trial_id]
            self._give_back(devices)

    def _wait(self, spec: TrialSpec, watcher: TrialWatcher) -> tuple[str, ...] | Stopped:
        names = (CORES,) if spec.device == "cpu" else self._gpus()
        num_devices = 1 if spec.device == "cpu" else min(spec.layout.world_size, len(names))
        last_reason: str | None = None
        while (devices := self._try(names, num_devices)) is None:
            reason = f"waits until other trials on this machine have ended{self._said_of_holders(names)}"
            if reason != last_reason:
                watcher.on_wait(reason)
                last_reason = reason
            if stopped := watcher.stop_requested():
                return stopped
            time.sleep(_POLL_S)
        if last_reason is not None:
            watcher.on_wait(None)
        return devices

    def _try(self, names: Sequence[str], num_devices: int) -> tuple[str, ...] | None:
        """Lock ``num_devices`` of the named devices and return their names, or return None if fewer are free."""
        found: list[str] = []
        try:
            with self._mutex, launcher_work():
                for name in names:
                    if len(found) < num_devices and self._take(name):
                        found.append(name)
        finally:
            if len(found) < num_devices:
                self._give_back(found)
        return tuple(found) if len(found) == num_devices else None

    def _said_of_holders(self, names: Sequence[str]) -> str:
        """Describe the other processes that hold the devices, and say if one is frozen.

        A frozen process keeps its locks until a person ends it.
        """
        if self._lock_folder is None:
            return ""
        folder = self._lock_folder()
        pids = {_holder(folder / _file_name(name)) for name in names if name not in self._taken}
        said = [_standing(pid) for pid in sorted(pid for pid in pids if pid is not None)]
        return f" ({'; '.join(said)})" if said else ""

    def _take(self, name: str) -> bool:
        if name in self._taken:
            return False
        lock = None
        if self._lock_folder is not None:
            path = self._lock_folder() / _file_name(name)
            lock = FileLock(path, thread_local=False, fallback_to_soft=False)
            try:
                lock.acquire(blocking=False)
            except Timeout:
                return False
            with suppress(OSError):  # on a full disk, waiting launchers cannot read the holder's process id
                path.with_suffix(_HOLDER).write_text(str(os.getpid()))  # trying a lock empties the lock file
        self._taken[name] = lock
        return True

    def _give_back(self, devices: Sequence[str]) -> None:
        with self._mutex:
            for name in devices:
                if lock := self._taken.pop(name):
                    lock.release()


def _file_name(device: str) -> str:
    return f"{device.replace('/', '-')}.lock"


def _holder(path: Path) -> int | None:
    """Return the id of the process that locked this file last; None if that process did not write it down."""
    try:
        return int(path.with_suffix(_HOLDER).read_text())
    except (OSError, ValueError):
        return None


def _standing(pid: int) -> str:
    try:
        is_frozen = psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return f"process {pid} of another machine or container uses the devices"
    return (
        f"process {pid} uses the devices and is stopped: continue it or kill it"
        if is_frozen
        else f"process {pid} uses the devices"
    )


def _lock_folder() -> Path:
    """Return the folder where this user's launchers on this machine lock its devices; create it if it is missing.

    Raises:
        CannotRun: Another user created the folder.
    """
    folder = Path(tempfile.gettempdir()) / f"autotuner-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise CannotRun(
            f"{folder} belongs to another user; remove it, or set TMPDIR to a folder that only this user can write to"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CannotRun(f"other users may write to {folder}: run chmod 700 {folder}")
    return folder
