"""What needs somebody now."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.openapi import problems
from api.schemas import AttentionList
from autotuner.core.documents import Document

router = APIRouter(tags=["health"])


@router.get("/attention", responses=problems())
def list_attention(app: AppOf) -> Document[AttentionList]:
    """List what went wrong and stands unmended, with the page where to go on with it.

    Sweeps that wait while no worker lives; retunes whose last run was a regression or could not run; gates that failed,
    could not run or stayed undecided; sweeps that failed and whose job no later one measured; clusters whose last check
    failed; webhooks with deliveries that were given up. Sweeps, gates and deliveries are listed for a week.
    """
    return AttentionList.of(app)
