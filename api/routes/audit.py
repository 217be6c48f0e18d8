"""The audit log: who changed what, and who was refused."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import AppOf, PageOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import AuditPage
from autotuner.core.access import Scope
from autotuner.core.documents import Document

router = APIRouter(tags=["access"])

CallerName = Annotated[str | None, Query(max_length=128, description="Only what that caller did.")]


@router.get("/audit", responses=problems(422), openapi_extra=needs(Scope.ADMIN))
def read_audit(app: AppOf, page: PageOf, caller: CallerName = None) -> Document[AuditPage]:
    """List what was changed and what was refused, newest first: who asked, for what, when, and from where.

    What only looks, predicts or explains is not listed. A refusal that is repeated within a minute is listed once.
    """
    return AuditPage.of(app.store.accounts, caller, page)
