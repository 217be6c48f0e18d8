"""The processes that members started, and those of them that nobody holds any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psutil

from tests.chaos.members import MARK, Member


def marked(mark: str) -> Iterator[psutil.Process]:
    """Every live process that a member is or started, itself or by another."""
    for process in psutil.process_iter():
        try:
            is_ours = process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if is_ours:
            yield process


def orphans(mark: str, members: Sequence[Member]) -> list[str]:
    """Marked processes that do not descend from a live member."""
    alive = {member.pid for member in members if member.is_alive}
    return [_shown(process) for process in marked(mark) if not alive & _ancestors(process)]


def _ancestors(process: psutil.Process) -> set[int]:
    try:
        return {process.pid, *(parent.pid for parent in process.parents())}
    except psutil.NoSuchProcess:
        return {process.pid}


def _shown(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:80]}"
    except psutil.NoSuchProcess:
        return str(process.pid)
