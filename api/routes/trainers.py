"""What an operator registered to run as a trial."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.openapi import problems
from api.schemas import TrainerList
from autotuner.core.documents import Document

router = APIRouter(prefix="/trainers", tags=["trainers"])


@router.get("", responses=problems())
def list_trainers(app: AppOf) -> Document[TrainerList]:
    """List the trainers that a sweep can name (`trainer`), and what it may search with each.

    Commands, folders and variables stay with the operator who registered them.
    """
    return TrainerList.of(registered.trainer for registered in app.trainers.values())
