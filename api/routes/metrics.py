"""What Prometheus reads."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.metrics.metrics import CONTENT_TYPE, Metrics

router = APIRouter(include_in_schema=False)


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """Tell Prometheus of requests, the event loop, and what is stored."""
    told: Metrics = request.app.state.metrics
    return Response(told.text(), media_type=CONTENT_TYPE)
