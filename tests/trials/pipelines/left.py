"""What is left of delegates: their processes hold the memory that they share with their rank by its name."""

from __future__ import annotations

from pathlib import Path


def delegates_left(folder: Path) -> list[int]:
    """Processes that share slots and write to a rank's log under this folder, which the rank's delegates inherit."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _is_delegate(process, folder):
            found.append(int(process.name))
    return found


def _is_delegate(process: Path, folder: Path) -> bool:
    try:
        opened = [str(link.readlink()) for link in (process / "fd").iterdir()]
    except OSError:  # it is gone, or not ours to look at
        return False
    return any("memfd:slots" in name for name in opened) and any(name.startswith(str(folder)) for name in opened)
