"""What the end of a sweep tells the world; the transaction around it is the caller's."""

from __future__ import annotations

from sqlalchemy import Connection, select, union_all

from autotuner.core.announcement import announce_end
from autotuner.core.errors import InvalidInput
from autotuner.store import announcements, overviews, records
from autotuner.store.tables import mfu_gates, retune_runs


def announce_sweep(connection: Connection, sweep_id: str, now: float) -> None:
    """Announce a sweep that has ended, unless a retune or an MFU gate started it and tells of its own outcome."""
    of_runs = select(retune_runs.c.id).where(retune_runs.c.sweep_id == sweep_id)
    of_gates = select(mfu_gates.c.id).where(mfu_gates.c.sweep_id == sweep_id)
    if connection.scalar(union_all(of_runs, of_gates).limit(1)) is None:
        announcements.tell(connection, announce_end(overviews.get_overview(connection, sweep_id, now)))


def fail_unreadable(connection: Connection, sweep_id: str, problem: InvalidInput, now: float) -> None:
    """End and announce a sweep that this release cannot read; one that has ended stays as it is."""
    if records.fail_unreadable(connection, sweep_id, problem, now):
        announce_sweep(connection, sweep_id, now)
