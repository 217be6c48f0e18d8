"""What the end of a sweep tells the world; the transaction around it is the caller's."""

from __future__ import annotations

from sqlalchemy import Connection, select, union_all

from autotuner.domain.upkeep.sweep_end import announce_end
from autotuner.store import announcements, overviews
from autotuner.store.tables import mfu_gates, retune_runs

__all__ = ["announce_sweep"]


def announce_sweep(connection: Connection, sweep_id: str, now: float) -> None:
    """Announce a sweep that has ended, unless a retune or an MFU gate started it and tells of its own outcome."""
    of_runs = select(retune_runs.c.id).where(retune_runs.c.sweep_id == sweep_id)
    of_gates = select(mfu_gates.c.id).where(mfu_gates.c.sweep_id == sweep_id)
    if connection.scalar(union_all(of_runs, of_gates).limit(1)) is None:
        announcements.tell(connection, announce_end(overviews.get_overview(connection, sweep_id, now)))
