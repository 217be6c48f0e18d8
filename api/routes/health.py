"""Is the process alive, and can it serve."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.edge.needs import OPEN
from api.openapi import problems
from api.schemas import Health, Readiness
from autotuner.core.documents import Document

router = APIRouter(tags=["health"])


@router.get("/health", responses=problems(), openapi_extra=OPEN)
async def health() -> Document[Health]:
    """Say that the process answers; asks nothing of the database. Restart it when this fails."""
    return Health()


@router.get("/ready", responses=problems(), openapi_extra=OPEN)
def ready(app: AppOf) -> Document[Readiness]:
    """Say that the database answers, is migrated and takes writes. Send no requests while this fails.

    A service without any worker is ready: it answers, and sweeps wait. Watch `num_workers` for that.
    """
    revision, now = app.store.check(), app.clock.now()
    num_workers = sum(worker.is_alive(now) for worker in app.store.workers.list())
    return Readiness(schema_revision=revision, num_workers=num_workers)
