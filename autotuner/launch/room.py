"""The room of this machine: for ranks on its cores, weights in its memory, and files of trials on its disk."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import psutil

from autotuner.core.trial import FailureKind, Stopped, TrialFailure
from autotuner.core.trial_spec import TrialSpec
from autotuner.core.units import format_bytes
from autotuner.launch.detect import num_usable_cores
from autotuner.launch.ranks import launcher_work
from autotuner.ports import TrialWatcher

_LEAST_FREE_BYTES = 1 << 16
"""Room for the reports and the logs of a failing trial."""

_POLL_S = 0.2

_OF_THE_PROGRAM = (FailureKind.OOM, FailureKind.NUMERICS)
"""Ends that a full disk does not bring about."""

_RANKS_PER_CORE = 16
"""Ranks may share a core, at a price in step time; beyond this they wait for each other and say nothing of a layout."""

_FEWEST = 64
"""Ranks that the smallest machine forks."""


def most_core_ranks() -> int:
    """Ranks that this machine's cores share at most."""
    return max(_FEWEST, _RANKS_PER_CORE * num_usable_cores())


def no_room(spec: TrialSpec) -> TrialFailure | None:
    """Why a trial on cores must not begin here; None where it may."""
    if spec.device != "cpu":
        return None
    if spec.layout.world_size > most_core_ranks():
        message = f"{spec.layout.world_size} ranks are more than the {most_core_ranks()} that these cores share"
        return TrialFailure(kind=FailureKind.CRASH, message=message)
    has_bytes, is_whole = psutil.virtual_memory().total, not spec.settings.proxy_layers_per_stage
    needs_bytes = 4 * spec.model.num_parameters
    if spec.trainer is None and is_whole and needs_bytes > has_bytes:
        needs = f"the weights alone need {format_bytes(needs_bytes)}"
        message = f"{needs}, and this machine has {format_bytes(has_bytes)}"
        return TrialFailure(kind=FailureKind.OOM, message=message)
    return None


def says_full(failure: TrialFailure) -> bool:
    """Return whether a trial's last words are those of a disk, or of a quota on one, that is full."""
    said = f"{failure.message}\n{failure.log_tail}".lower()
    return any(os.strerror(number).lower() in said for number in (errno.ENOSPC, errno.EDQUOT))


class DiskRoom:
    """The room on the disk of a folder, while a trial waits for it or writes there.

    Ranks on a full disk die without a word, since they cannot write it, and by the time that somebody asks why, there
    may be room again. So the disk is looked at while they run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._was_full = False

    def wait(self, watcher: TrialWatcher) -> Stopped | None:
        """Return when there is room for the files of a trial; the watcher's answer if it wants a stop before.

        Raises:
            CannotRun: The folder cannot be reached.
        """
        is_told = False
        while (free_bytes := self._free_bytes()) < _LEAST_FREE_BYTES:
            if not is_told:
                left = format_bytes(free_bytes)
                watcher.on_wait(f"waits for room on the disk of {self._folder}, which has {left} left")
                is_told = True
            if stopped := watcher.stop_requested():
                return stopped
            time.sleep(_POLL_S)
        if is_told:
            watcher.on_wait(None)
        return None

    def look(self) -> None:
        """Remember whether the disk is full now."""
        self._was_full = self._was_full or self._free_bytes() < _LEAST_FREE_BYTES

    def if_full(self, failure: TrialFailure) -> Stopped | None:
        """Return what a failure says where the disk was full: nothing of the trial, which may be run again."""
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
