"""Sweeps: creates, lists, reads and changes them; ``runs`` has the operations that all runs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

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
from autotuner.core.sweep import SweepOverview, SweepRequest, SweepStanding
from autotuner.core.sweep_requests import BudgetChange, SweepClone, SweepCreate
from autotuner.core.trial import Trial
from autotuner.search.preview import SweepPreview
from autotuner.search.results.reached import RankedTrial, standings

# Sweeps: create, list, read; their trials and their ranking.

sweeps_router = APIRouter(prefix="/sweeps", tags=["sweeps"])

TrialNumber = Annotated[
    int | None, Query(ge=0, le=MAX_INTEGER, description="Number of a trial: return only comments on it.")
]


def _start(
    request: Request, response: Response, app: AppOf, caller: CallerOf, idempotency_key: IdempotencyKey = None
) -> Callable[[SweepCreate | SweepRequest], SweepStanding]:
    """Return a function that queues a sweep of the caller and gives the response its status and ``Location``."""

    def start(body: SweepCreate | SweepRequest) -> SweepStanding:
        run, is_new = app.start(body, key=idempotency_key, caller=caller)
        response.status_code = 201 if is_new else 200
        response.headers["Location"] = request.url_for("read_sweep", sweep_id=run.id).path
        return app.standing(app.store.get_sweep(run.id))

    return start


_StartOf = Annotated[Callable[[SweepCreate | SweepRequest], SweepStanding], Depends(_start)]

CREATED_BEFORE = {
    "model": Document[SweepStanding],
    "description": "An earlier request with this Idempotency-Key created this sweep.",
}


@sweeps_router.post("", status_code=201, responses={200: CREATED_BEFORE, **problems(400, 404, 409, 422, 429)})
def create_sweep(body: Document[SweepCreate], start: _StartOf) -> Document[SweepStanding]:
    """Queue a new sweep, which searches for the best layout of a job and runs trials of the promising layouts.

    A repeated request with the same `Idempotency-Key` creates no second sweep: it returns the first one with status
    200. The same key with another body is refused with 409. Equal keys of different callers are different keys.

    If the caller's quota limits accelerator-hours, it limits the budget too. A sweep without a limit of hours gets all
    hours that are left of the quota. A sweep with a higher limit than the hours that are left is refused with 429. A
    sweep with a higher limit than the quota of a whole day is refused with 422.
    """
    return start(body)


@sweeps_router.post("/preview", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def preview_sweep(app: AppOf, body: Document[SweepCreate]) -> Document[SweepPreview]:
    """Preview the search of a sweep, without starting the sweep.

    The answer has the number of layouts in the space, the number that each rule excludes, the number that a trial can
    run, and the number that are predicted to fit. It also has the three best predicted layouts, and remedies if no
    layout fits. `refusal` is the reason why this service would not start the sweep; quotas are only checked at the
    start.
    """
    return app.preview(app.sweep(body))


@sweeps_router.get("", responses=problems(422))
def list_sweeps(app: AppOf, where: SweepFilterOf, order: SweepOrderOf, page: PageOf) -> Document[Listed[SweepOverview]]:
    """List sweeps, newest first unless the request names another order."""
    overviews, total = app.store.list_overviews(now=app.clock.now(), where=where, order=order, page=page)
    return Listed(items=tuple(overviews), total=total, limit=page.limit, offset=page.offset)


@sweeps_router.get("/{sweep_id}", responses=problems(404, 422))
def read_sweep(app: AppOf, sweep: SweepOf) -> Document[SweepStanding]:
    """Read a sweep: state, stop reason, progress, trials by state, best trial, and the whole request."""
    return app.standing(sweep)


@sweeps_router.get("/{sweep_id}/trials", responses=problems(404, 422))
def list_trials(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[Listed[Trial]]:
    """List a sweep's trials by number. Their training steps are left out; the route of one trial has them."""
    trials, total = app.store.list_trials(sweep.id, where=where, page=page)
    return Listed(items=tuple(trial.brief for trial in trials), total=total, limit=page.limit, offset=page.offset)


@sweeps_router.get("/{sweep_id}/ranking", responses=problems(404, 422))
def rank_sweep(app: AppOf, sweep: SweepOf, where: TrialFilterOf, page: PageOf) -> Document[Listed[RankedTrial]]:
    """Rank a sweep's trials by its objective, the best first, and mark the trials that are tied with the first one.

    A trial has no rank if its accelerator lacks the number format of its layout, or if its convergence gate failed.
    """
    trials, total = app.store.ranking(sweep.id, where=where, page=page)
    known = standings(app.store.ranked_times(sweep.id))
    items = tuple(RankedTrial.of_sweep(trial.brief, sweep.request, known) for trial in trials)
    return Listed(items=items, total=total, limit=page.limit, offset=page.offset)


# Comments and tags of sweeps and trials.


@sweeps_router.post("/{sweep_id}/comments", status_code=201, responses=problems(400, 404, 422))
def create_comment(app: AppOf, caller: CallerOf, sweep_id: SweepId, body: Document[CommentCreate]) -> Document[Comment]:
    """Write a comment on a sweep or on one of its trials: a text, tags that the list of sweeps can filter by, or both.

    Callers who may start sweeps may comment on every sweep.
    """
    return app.store.comments.add(sweep_id, body, now=app.clock.now(), caller=caller)


@sweeps_router.get("/{sweep_id}/comments", responses=problems(404, 422))
def list_comments(
    app: AppOf, sweep_id: SweepId, page: PageOf, trial_number: TrialNumber = None
) -> Document[Listed[Comment]]:
    """List the comments on a sweep and on its trials, newest first; with `trial_number`, those on that trial alone."""
    found, total = app.store.comments.list(sweep_id, trial_number=trial_number, page=page)
    return Listed(items=tuple(found), total=total, limit=page.limit, offset=page.offset)


# Changes of sweeps: budgets, trials that run again, and clones.

control_router = APIRouter(tags=["sweeps"])


@control_router.delete("/comments/{comment_id}", responses=problems(404, 422))
def remove_comment(app: AppOf, caller: CallerOf, comment_id: RunId) -> Document[Comment]:
    """Remove a comment from a sweep or a trial, and return it. Only its author and admins may do this."""
    return app.store.comments.remove(comment_id, caller=caller)


@control_router.post("/sweeps/{sweep_id}/budget", responses=problems(400, 404, 409, 422))
def change_budget(
    app: AppOf, caller: CallerOf, sweep_id: SweepId, body: Document[BudgetChange]
) -> Document[SweepStanding]:
    """Change the budget of a sweep. Each limit is a total that includes what the sweep has already used.

    A finished sweep is opened again and continues where it ended. A budget that would end the sweep again at once is
    refused with status 422. The request is refused with 409 if the sweep has tried every layout, has failed, or belongs
    to a retune or a performance regression gate.
    """
    app.change(sweep_id, body.budget, caller=caller)
    return app.standing(app.store.get_sweep(sweep_id))


@control_router.post(
    "/sweeps/{sweep_id}/clone", status_code=201, responses={200: CREATED_BEFORE, **problems(400, 404, 409, 422)}
)
def clone_sweep(app: AppOf, sweep: SweepOf, body: Document[SweepClone], start: _StartOf) -> Document[SweepStanding]:
    """Queue a copy of a sweep with the changes in the body. The copy belongs to the caller.

    The copy uses the results of the original only as every new sweep uses stored trials. `Idempotency-Key` works as
    for a new sweep.
    """
    return start(app.clone(body, sweep.request))


@control_router.post("/trials/{trial_id}/rerun", responses=problems(404, 409, 422))
def rerun_trial(app: AppOf, caller: CallerOf, trial_id: TrialId) -> Document[SweepStanding]:
    """Run an ended trial again, without other trials, after the present work has ended.

    The new trial repeats the first measured trial of the same layout and shows how much equal runs differ. If no trial
    of this layout was measured, the new trial gets a rank. A finished sweep is opened again only for the new trial.
    While such a repeat waits or runs, further requests change nothing. The request is refused with 409 if the trial has
    not ended, if the budget is used up, or if the sweep belongs to a retune or a performance regression gate.
    """
    return app.standing(app.store.get_sweep(app.rerun(trial_id, caller=caller)))
