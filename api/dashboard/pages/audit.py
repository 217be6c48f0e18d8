"""The page of the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.edge.auth import needs
from api.routes.service import CallerName
from api.schemas import AuditPage
from autotuner.core.access import Scope
from autotuner.core.documents import MAX_INTEGER
from autotuner.ports import Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_ENTRIES_PER_PAGE = 50

_Part = Annotated[Literal["live"] | None, Query()]
_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _ENTRIES_PER_PAGE)]


@router.get("/audit", openapi_extra=needs(Scope.ADMIN))
def audit_page(
    request: Request, app: AppOf, part: _Part = None, caller: CallerName = None, number: _Number = 1
) -> Response:
    """What was changed and refused, newest first, by everybody or by one caller."""
    window = Page(limit=_ENTRIES_PER_PAGE, offset=(number - 1) * _ENTRIES_PER_PAGE)
    found = AuditPage.of(app.store.accounts, caller, window)
    return page(
        request,
        "_audit.html" if part else "audit.html",
        entries=found.items,
        total=found.total,
        whom=caller or "",
        number=number,
        is_last=window.offset + window.limit >= found.total,
    )
