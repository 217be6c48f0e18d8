"""Is the process alive, and can it serve."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from api.dataclass_schema import schema_of
from api.dependencies import AppOf
from api.openapi import answers
from api.schemas import Health, Readiness
from autotuner.domain.wire import to_dict

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get("/health", response_model=schema_of(Health), responses=answers(Health()))
async def health() -> Any:
    """Say that the process answers; asks nothing of the database. Restart it when this fails."""
    return to_dict(Health())


@router.get("/ready", response_model=schema_of(Readiness), responses=answers(Readiness(schema_revision="0002")))
def ready(app: AppOf) -> Any:
    """Say that the database answers and is migrated. Send no requests while this fails."""
    return to_dict(Readiness(schema_revision=app.store.check()))
