"""What training software predictions know, and from which runs."""

from __future__ import annotations

from fastapi import APIRouter

from api.documents import Document
from api.openapi import problems
from api.schemas import StackProfileList
from autotuner.catalog.stack_profiles import stack_profiles

__all__ = ["router"]

router = APIRouter(prefix="/stacks", tags=["catalog"])


@router.get("", responses=problems())
def list_stack_profiles() -> Document[StackProfileList]:
    """List the training software with its framework and versions, and the measured runs that it was fitted to.

    Its constants are at `/catalog/stacks`.
    """
    return StackProfileList(items=stack_profiles())
