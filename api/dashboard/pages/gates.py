"""The pages of MFU gates: all of them with the baselines, and one with what it measured."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from api.dashboard.render import page
from api.dashboard.words import source
from api.dependencies import AppOf
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.errors import NotFound
from autotuner.core.upkeep import Baseline
from autotuner.ports import MfuGateStore, Page

router = APIRouter(include_in_schema=False, default_response_class=Response)

_GATES_PER_PAGE = 50

_Part = Annotated[Literal["live"] | None, Query()]
_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _GATES_PER_PAGE)]
_GateId = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,64}$")]


@router.get("/gates")
def gates_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """All gates, newest first, and the baselines that they are held to."""
    window = Page(limit=_GATES_PER_PAGE, offset=(number - 1) * _GATES_PER_PAGE)
    gates, total = app.store.mfu_gates.list(page=window)
    baselines = app.store.mfu_gates.list_baselines()
    return page(
        request,
        "_gates.html" if part else "gates.html",
        gates=gates,
        total=total,
        number=number,
        is_last=window.offset + window.limit >= total,
        baselines=baselines,
        sources={one.gate_id: _source(app.store.mfu_gates, one) for one in baselines},
        service=str(request.base_url).rstrip("/"),
    )


@router.get("/gates/{gate_id}")
def gate_page(request: Request, app: AppOf, gate_id: _GateId, part: _Part = None) -> Response:
    """One gate: how it ended, what it measured beside its baseline, and what differs in the environment."""
    return page(request, "_gate.html" if part else "gate.html", gate=app.store.mfu_gates.get(gate_id))


def _source(gates: MfuGateStore, baseline: Baseline) -> str:
    """What the figures of a baseline are called, by the gate that set it."""
    try:
        return source(gates.get(baseline.gate_id).request.sweep)
    except NotFound:  # set by a release that kept none
        return "measured"
