"""Sweeps: create, list, read, cancel; their trials and their ranking."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response

from api import examples, views
from api.body import CodecBody
from api.dataclass_schema import schema_of
from api.dependencies import AppOf, PageOf, SweepOf, TrialFilterOf
from api.openapi import answers
from api.requests import sweep_request
from api.schemas import RankingPage, SweepCreate, SweepDetail, SweepPage, TrialPage
from autotuner.domain.sweep import SweepState
from autotuner.domain.wire import to_dict

__all__ = ["router"]

router = APIRouter(prefix="/sweeps", tags=["sweeps"])

_SweepBody = Annotated[SweepCreate, CodecBody(SweepCreate), Body(openapi_examples=examples.sweep_bodies())]

_IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,200}$",
        description="Any text that names this request; sent again, it returns the sweep of the first time.",
        examples=["ci-run-4711"],
    ),
]


@router.post(
    "",
    status_code=201,
    response_model=schema_of(SweepDetail),
    responses={
        **answers(examples.sweep_detail(), 400, 404, 409, 422, status=201),
        200: {
            **answers(examples.sweep_detail())[200],
            "description": "This Idempotency-Key created the sweep before.",
            "model": schema_of(SweepDetail),
        },
    },
)
def create_sweep(
    request: Request,
    response: Response,
    app: AppOf,
    body: _SweepBody,
    idempotency_key: _IdempotencyKey = None,
) -> Any:
    """Queue a sweep.

    With an `Idempotency-Key` a repeated request creates nothing: it answers 200 with the sweep as it stands now.
    The same key with another body is refused with 409.
    """
    sweep, is_new = app.create_sweep(sweep_request(app, body), idempotency_key)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_sweep", sweep_id=sweep.id).path
    return to_dict(views.sweep_detail(app.store, sweep, app.clock.now()))


@router.get("", response_model=schema_of(SweepPage), responses=answers(examples.sweep_page(), 422))
def list_sweeps(
    app: AppOf,
    page: PageOf,
    state: Annotated[SweepState | None, Query(description="Only sweeps in this state.")] = None,
) -> Any:
    """List sweeps, newest first."""
    sweeps, total = app.store.list_sweeps(state=state, page=page)
    now = app.clock.now()
    items = tuple(views.sweep_summary(app.store, sweep, now) for sweep in sweeps)
    return to_dict(SweepPage(items=items, total=total, limit=page.limit, offset=page.offset))


@router.get("/{sweep_id}", response_model=schema_of(SweepDetail), responses=answers(examples.sweep_detail(), 404, 422))
def read_sweep(app: AppOf, sweep: SweepOf) -> Any:
    """Read a sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
    return to_dict(views.sweep_detail(app.store, sweep, app.clock.now()))


@router.post(
    "/{sweep_id}/cancel", response_model=schema_of(SweepDetail), responses=answers(examples.sweep_detail(), 404, 422)
)
def cancel_sweep(app: AppOf, sweep: SweepOf) -> Any:
    """Ask for the end of a sweep.

    A queued sweep is cancelled at once, a running one as soon as its trial is stopped; a finished one stays as it is.
    """
    now = app.clock.now()
    return to_dict(views.sweep_detail(app.store, app.store.request_cancel(sweep.id, now=now), now))


@router.get(
    "/{sweep_id}/trials", response_model=schema_of(TrialPage), responses=answers(examples.trial_page(), 404, 422)
)
def list_trials(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Any:
    """List a sweep's trials by number, without their steps."""
    trials, total = app.store.list_trials(sweep.id, where=where, page=page)
    items = tuple(views.trial_view(trial) for trial in trials)
    return to_dict(TrialPage(items=items, total=total, limit=page.limit, offset=page.offset))


@router.get(
    "/{sweep_id}/ranking", response_model=schema_of(RankingPage), responses=answers(examples.ranking_page(), 404, 422)
)
def rank_sweep(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Any:
    """Rank a sweep's complete trials by measured MFU, highest first."""
    trials, total = app.store.ranking(sweep.id, where=where, page=page)
    return to_dict(RankingPage(items=views.ranked(trials, page), total=total, limit=page.limit, offset=page.offset))
