"""Examples of workers."""

from __future__ import annotations

from api.schemas import WorkerList, WorkerView

_AT = 1_760_000_000.0


def worker_list() -> WorkerList:
    """One that runs a sweep, and one that died."""
    busy = WorkerView(
        name="node1-4711-6f3a2c",
        version="0.9.0",
        started_at=_AT,
        seen_at=_AT + 3600,
        is_alive=True,
        sweep_id="sw-5f1c9a2e77b0",
    )
    dead = WorkerView(
        name="node2-815-09bd4e",
        version="0.9.0",
        started_at=_AT,
        seen_at=_AT + 60,
        is_alive=False,
        sweep_id=None,
    )
    return WorkerList(items=(busy, dead))
