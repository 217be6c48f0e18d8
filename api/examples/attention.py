"""Examples of what needs somebody."""

from __future__ import annotations

from api.schemas import AttentionList, TroubleView
from autotuner.core.announcement import Trouble, TroubleKind


def attention_list() -> AttentionList:
    """A layout in use that became slower."""
    detail = "nightly lost 7.1 % ± 0.8 % since 2026-11-20: OMP_NUM_THREADS was 2 and is 1"
    kind, at = TroubleKind.REGRESSION, 1_760_000_000.0
    trouble = Trouble(kind=kind, subject="nightly", name="nightly", detail=detail, at=at)
    return AttentionList(items=(TroubleView.of(trouble),))
