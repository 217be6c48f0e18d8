"""Who runs sweeps."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.openapi import problems
from api.schemas import WorkerList
from autotuner.core.documents import Document

router = APIRouter(tags=["health"])


@router.get("/workers", responses=problems())
def list_workers(app: AppOf) -> Document[WorkerList]:
    """List the workers, whether each lives, and the sweep that it runs.

    One that was stopped in good order is no longer listed; one that died is for a day.
    """
    return WorkerList.of(app)
