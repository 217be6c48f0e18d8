"""Folders of running attempts: gone when the attempt has ended, and cleared up after launchers that were killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HELD = ".held"
"""A file in the folder that its launcher keeps locked; the kernel drops the lock (flock) with the launcher."""


@contextmanager
def work_folder(work_dir: Path, name: str) -> Iterator[Path]:
    """A new folder for the block, gone after it; folders that dead launchers left beside it go first.

    Raises:
        OSError: It cannot be made.
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
    """Hold the folder; it has its file once that is locked, so nobody takes the new one for a dead launcher's."""
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
        with contextlib.suppress(OSError):  # somebody else clears it up, or its owner has just ended
            _remove_if_left(file)


def _remove_if_left(file: Path) -> None:
    found = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(file.parent, ignore_errors=True)
    finally:
        os.close(found)
