"""Sweeps: create, list, read, cancel; their trials and their ranking."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from api.dependencies import (
    AppOf,
    CallerOf,
    PageOf,
    PreviewsOf,
    SweepFilterOf,
    SweepOf,
    SweepOrderOf,
    TrialFilterOf,
)
from api.edge.needs import needs
from api.openapi import problems
from api.owned import OwnSweepOf
from api.schemas import RankingPage, SweepCreate, SweepDetail, SweepPage, SweepPreview, TrialPage
from autotuner.core.access import Scope
from autotuner.core.documents import Document

router = APIRouter(prefix="/sweeps", tags=["sweeps"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,200}$",
        description="Any text that names this request; sent again, it returns the sweep of the first time.",
        examples=["ci-run-4711"],
    ),
]

CREATED_BEFORE = {"model": Document[SweepDetail], "description": "This Idempotency-Key created the sweep before."}


@router.post("", status_code=201, responses={200: CREATED_BEFORE, **problems(400, 404, 409, 422, 429)})
def create_sweep(
    request: Request,
    response: Response,
    app: AppOf,
    caller: CallerOf,
    body: Document[SweepCreate],
    idempotency_key: IdempotencyKey = None,
) -> Document[SweepDetail]:
    """Queue a sweep.

    With an `Idempotency-Key` a repeated request creates nothing: it answers 200 with the sweep as it stands now.
    The same key with another body is refused with 409. Keys of different callers are different keys.

    Where the caller has a quota of accelerator-hours, the budget is held to what is left of it: a sweep that names none
    gets all of that, one that names more is refused with 429, and one that names more than a day ever has with 422.
    """
    body.require_runnable(app)
    sweep, is_new = app.create_sweep(body.resolved(app), idempotency_key, caller)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_sweep", sweep_id=sweep.id).path
    return SweepDetail.of_sweep(app, sweep)


@router.post("/preview", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def preview_sweep(app: AppOf, previews: PreviewsOf, body: Document[SweepCreate]) -> Document[SweepPreview]:
    """Say what a sweep would search, without starting it.

    How many layouts its space makes, what each rule takes out of these, how many a trial can run and how many are
    predicted to fit, the three best by prediction, and what would help where none fits. `refusal` says why this service
    would not start it as it is; quotas are asked once it is started.
    """
    return previews.preview(app, body.resolved(app))


@router.get("", responses=problems(422))
def list_sweeps(app: AppOf, where: SweepFilterOf, order: SweepOrderOf, page: PageOf) -> Document[SweepPage]:
    """List sweeps, newest first unless another order is asked for."""
    return SweepPage.of(app.store, where, order, page, app.clock.now())


@router.get("/{sweep_id}", responses=problems(404, 422))
def read_sweep(app: AppOf, sweep: SweepOf) -> Document[SweepDetail]:
    """Read a sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
    return SweepDetail.of_sweep(app, sweep)


@router.post("/{sweep_id}/cancel", responses=problems(404, 422))
def cancel_sweep(app: AppOf, sweep: OwnSweepOf) -> Document[SweepDetail]:
    """Ask for the end of a sweep.

    A queued sweep is cancelled at once, a running one as soon as its trial is stopped; a finished one stays as it is.
    """
    return SweepDetail.of_sweep(app, app.store.request_cancel(sweep.id, now=app.clock.now()))


@router.get("/{sweep_id}/trials", responses=problems(404, 422))
def list_trials(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[TrialPage]:
    """List a sweep's trials by number, without their steps."""
    return TrialPage.of(*app.store.list_trials(sweep.id, where=where, page=page), page)


@router.get("/{sweep_id}/ranking", responses=problems(404, 422))
def rank_sweep(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[RankingPage]:
    """Rank a sweep's trials by what it maximises, the best first, and say which cannot be told from the first.

    A trial in a number format that its hardware lacks, or whose loss gate failed, has no rank.
    """
    return RankingPage.of_sweep(app.store, sweep.id, where, page)
