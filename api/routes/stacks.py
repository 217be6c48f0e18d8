"""What training software predictions know, and from which runs."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from api.openapi import problems
from api.schemas import StackProfileList
from autotuner.catalog.software import StackProfile, stack_profiles
from autotuner.core.documents import Document
from autotuner.costmodel.evidence import NAMES

router = APIRouter(prefix="/stacks", tags=["catalog"])


@router.get("", responses=problems())
def list_stack_profiles() -> Document[StackProfileList]:
    """List the training software with its framework and versions, and the measured runs that it was fitted to.

    Its constants are at `/catalog/stacks`.
    """
    return StackProfileList(items=tuple(_with_names(profile) for profile in stack_profiles()))


def _with_names(profile: StackProfile) -> StackProfile:
    """Return the profile with the texts of answers in the place of the words that the catalog counts runs by."""
    compared = tuple(
        replace(entry, options={NAMES.get(word, word): count for word, count in entry.options.items()})
        for entry in profile.compared
    )
    return replace(profile, compared=compared)
