"""The page of what stored trials taught of hardware and software."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.schemas import CalibrationList

router = APIRouter(include_in_schema=False, default_response_class=Response)

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/calibrations")
def calibrations_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Every platform that trials ran on: how many, what they say of its speed, and what that is worth."""
    return page(
        request,
        "_calibrations.html" if part else "calibrations.html",
        calibrations=CalibrationList.of(app.recollection.lessons()).items,
        service=str(request.base_url).rstrip("/"),
    )
