"""The page of trainers that sweeps may name, and what each can be told."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dashboard.render import page
from api.dependencies import AppOf
from api.schemas import TrainerList

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/trainers")
def trainers_page(request: Request, app: AppOf) -> Response:
    """All registered trainers, in their operator's order."""
    found = TrainerList.of(registered.trainer for registered in app.trainers.values())
    return page(request, "trainers.html", trainers=found.items)
