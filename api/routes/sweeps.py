"""Sweeps: creates, lists, reads and changes them; ``runs`` has the operations that all runs share."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from autotuner.api.dependencies import (
    AppOf,
    CallerOf,
    PageOf,
    RunId,
    SweepFilterOf,
    SweepId,
    SweepOf,
    SweepOrderOf,
    TrialFilterOf,
    TrialId,
)
from autotuner.api.edge.auth import needs
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import IdempotencyKey
from autotuner.core.access import Scope
from autotuner.core.comment import Comment, CommentCreate
from autotuner.core.documents import MAX_INTEGER, Document
from autotuner.core.listed import Listed
from autotuner.core.run import Run
from autotuner.core.sweep import SweepOverview, SweepStanding
from autotuner.core.sweep_requests import BudgetChange, SweepClone, SweepCreate
from autotuner.core.trial import Trial
from autotuner.search.preview import SweepPreview
from autotuner.search.results.reached import RankedTrial, standings
from autotuner.service.build import App

# Sweeps: create, list, read; their trials and their ranking.

sweeps_router = APIRouter(prefix="/sweeps", tags=["sweeps"])

TrialNumber = Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="Only comments on this trial.")]

CREATED_BEFORE = {"model": Document[SweepStanding], "description": "This Idempotency-Key created the sweep before."}


@sweeps_router.post("", status_code=201, responses={200: CREATED_BEFORE, **problems(400, 404, 409, 422, 429)})
def create_sweep(
    request: Request,
    response: Response,
    app: AppOf,
    caller: CallerOf,
    body: Document[SweepCreate],
    idempotency_key: IdempotencyKey = None,
) -> Document[SweepStanding]:
    """Queue a new sweep.

    With an `Idempotency-Key` a repeated request creates nothing: it answers 200 with the sweep as it stands now.
    The same key with another body is refused with 409. Keys of different callers are different keys.

    Where the caller has a quota of accelerator-hours, the budget is held to what is left of it: a sweep that names none
    gets all of that, one that names more is refused with 429, and one that names more than a day ever has with 422.
    """
    return _started(request, response, app, app.start(body, key=idempotency_key, caller=caller))


def _started(request: Request, response: Response, app: App, started: tuple[Run, bool]) -> SweepStanding:
    run, is_new = started
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_sweep", sweep_id=run.id).path
    return app.standing(app.store.get_sweep(run.id))


@sweeps_router.post("/preview", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def preview_sweep(app: AppOf, body: Document[SweepCreate]) -> Document[SweepPreview]:
    """Say what a sweep would search, without starting it.

    How many layouts its space makes, what each rule takes out of these, how many a trial can run and how many are
    predicted to fit, the three best by prediction, and what would help where none fits. `refusal` says why this service
    would not start it as it is; quotas are asked once it is started.
    """
    return app.preview(app.sweep(body))


@sweeps_router.get("", responses=problems(422))
def list_sweeps(app: AppOf, where: SweepFilterOf, order: SweepOrderOf, page: PageOf) -> Document[Listed[SweepOverview]]:
    """List sweeps, newest first unless another order is asked for."""
    overviews, total = app.store.list_overviews(now=app.clock.now(), where=where, order=order, page=page)
    return Listed(items=tuple(overviews), total=total, limit=page.limit, offset=page.offset)


@sweeps_router.get("/{sweep_id}", responses=problems(404, 422))
def read_sweep(app: AppOf, sweep: SweepOf) -> Document[SweepStanding]:
    """Read a sweep: state, stop reason, progress, trials by state, best trial, and all that was asked."""
    return app.standing(sweep)


@sweeps_router.get("/{sweep_id}/trials", responses=problems(404, 422))
def list_trials(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[Listed[Trial]]:
    """List a sweep's trials by number, without their steps."""
    trials, total = app.store.list_trials(sweep.id, where=where, page=page)
    return Listed(items=tuple(trial.brief for trial in trials), total=total, limit=page.limit, offset=page.offset)


@sweeps_router.get("/{sweep_id}/ranking", responses=problems(404, 422))
def rank_sweep(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[Listed[RankedTrial]]:
    """Rank a sweep's trials by what it maximises, the best first, and say which cannot be told from the first.

    A trial in a number format that its hardware lacks, or whose convergence gate failed, has no rank.
    """
    trials, total = app.store.ranking(sweep.id, where=where, page=page)
    known = standings(app.store.ranked_times(sweep.id))
    items = tuple(RankedTrial.of_sweep(trial.brief, sweep.request, known) for trial in trials)
    return Listed(items=items, total=total, limit=page.limit, offset=page.offset)


# Comments and tags of sweeps and trials.


@sweeps_router.post("/{sweep_id}/comments", status_code=201, responses=problems(400, 404, 422))
def create_comment(app: AppOf, caller: CallerOf, sweep_id: SweepId, body: Document[CommentCreate]) -> Document[Comment]:
    """Write a comment on a sweep or on one of its trials: a text, tags by which the list of sweeps finds it, or both.

    Whoever may start sweeps may write on every sweep.
    """
    return app.store.comments.add(sweep_id, body, now=app.clock.now(), caller=caller)


@sweeps_router.get("/{sweep_id}/comments", responses=problems(404, 422))
def list_comments(
    app: AppOf, sweep_id: SweepId, page: PageOf, trial_number: TrialNumber = None
) -> Document[Listed[Comment]]:
    """List the comments on a sweep and on its trials, or on one trial, newest first."""
    found, total = app.store.comments.list(sweep_id, trial_number=trial_number, page=page)
    return Listed(items=tuple(found), total=total, limit=page.limit, offset=page.offset)


# Changes of sweeps: budgets, trials that run again, and clones.

control_router = APIRouter(tags=["sweeps"])


@control_router.delete("/comments/{comment_id}", responses=problems(404, 422))
def remove_comment(app: AppOf, caller: CallerOf, comment_id: RunId) -> Document[Comment]:
    """Remove a comment; the answer is the comment as it was. Only who wrote it and an admin may."""
    return app.store.comments.remove(comment_id, caller=caller)


@control_router.post("/sweeps/{sweep_id}/budget", responses=problems(400, 404, 409, 422))
def change_budget(
    app: AppOf, caller: CallerOf, sweep_id: SweepId, body: Document[BudgetChange]
) -> Document[SweepStanding]:
    """Give a sweep another budget, each limit for the whole sweep, what it has spent included.

    A finished sweep is opened again, and goes on where it ended; a budget by which it would end at once is refused with
    422. One that tried every layout, died, or was started by a retune or a performance regression gate: 409.
    """
    app.change(sweep_id, body.budget, caller=caller)
    return app.standing(app.store.get_sweep(sweep_id))


@control_router.post(
    "/sweeps/{sweep_id}/clone", status_code=201, responses={200: CREATED_BEFORE, **problems(400, 404, 409, 422)}
)
def clone_sweep(
    request: Request,
    response: Response,
    app: AppOf,
    caller: CallerOf,
    sweep: SweepOf,
    body: Document[SweepClone],
    idempotency_key: IdempotencyKey = None,
) -> Document[SweepStanding]:
    """Queue a sweep of the caller that is asked for as another was, but for what the body says.

    It knows nothing of the other but what every new sweep learns from stored trials. `Idempotency-Key` is as for a new
    sweep.
    """
    asked = app.clone(body, sweep.request)
    return _started(request, response, app, app.start(asked, key=idempotency_key, caller=caller))


@control_router.post("/trials/{trial_id}/rerun", responses=problems(404, 409, 422))
def rerun_trial(app: AppOf, caller: CallerOf, trial_id: TrialId) -> Document[SweepStanding]:
    """Run a trial that has ended again, by itself, once the running work has ended.

    The new trial repeats the first of its layout that was measured, and tells how far equal runs differ; where none
    was measured, it is ranked. A finished sweep is opened again to do that alone. While one waits or runs, asking again
    changes nothing. A trial that has not ended, a spent budget, and a sweep that a retune or a performance regression
    gate started: 409.
    """
    return app.standing(app.store.get_sweep(app.rerun(trial_id, caller=caller)))
