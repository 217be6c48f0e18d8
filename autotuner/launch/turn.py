"""One trial at a time on a machine, whoever starts it: two would disturb each other's measurements."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotuner.domain.trial import Stopped
from autotuner.ports import TrialWatcher

__all__ = ["lock_file", "turn"]

_POLL_S = 0.2


def lock_file() -> Path:
    """The file that this user's patient launchers on this machine lock while a trial runs."""
    return Path(tempfile.gettempdir()) / f"autotuner-{os.getuid()}.lock"


@contextmanager
def turn(watcher: TrialWatcher) -> Iterator[Stopped | None]:
    """Wait for other trials to end; the watcher's answer if it wants a stop meanwhile.

    The kernel drops the lock with its holder, however that ends.
    """
    with lock_file().open("w") as file:
        while not _locked(file.fileno()):
            if stopped := watcher.stop_requested():
                yield stopped
                return
            time.sleep(_POLL_S)
        yield None


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
