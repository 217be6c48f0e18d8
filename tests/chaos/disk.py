"""A disk that is small enough to be filled."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Disk:
    """A folder, and whether there is a disk of its own below it."""

    folder: Path
    is_own: bool

    def fill(self) -> None:
        """Leave no byte to anybody."""
        assert self.is_own, "the machine's own disk is not filled"
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for num_bytes in (_CHUNK_BYTES, 1):
                with contextlib.suppress(OSError):
                    while os.write(descriptor, b"x" * num_bytes):
                        pass
        finally:
            os.close(descriptor)

    def empty(self) -> None:
        """Give back what filling took."""
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Disk]:
    """A disk in memory where this user may mount one; else a folder, which is not filled."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes},mode=755", "tmpfs", str(folder)]
    is_own = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, is_own)
    finally:
        if is_own:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
