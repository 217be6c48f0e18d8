"""What callers change of sweeps that they asked for: pauses, budgets, trials that run again, and clones."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dependencies import AppOf, CallerOf, SweepOf, TrialId
from api.openapi import problems
from api.owned import OwnSweepOf
from api.routes.sweeps import CREATED_BEFORE, IdempotencyKey
from api.schemas import BudgetChange, SweepClone, SweepDetail
from autotuner.core.documents import Document

router = APIRouter(tags=["sweeps"])


@router.post("/sweeps/{sweep_id}/pause", responses=problems(404, 409, 422))
def pause_sweep(app: AppOf, sweep: OwnSweepOf) -> Document[SweepDetail]:
    """Have nobody work on a sweep until it is resumed.

    A queued sweep is paused at once, a running one as soon as its trial is stopped, which begins anew later. A paused
    sweep stays as it is; a finished one, and one that a retune or an MFU gate started: 409.
    """
    return SweepDetail.of_sweep(app, app.store.control.pause(sweep.id, now=app.clock.now()))


@router.post("/sweeps/{sweep_id}/resume", responses=problems(404, 409, 422))
def resume_sweep(app: AppOf, sweep: OwnSweepOf) -> Document[SweepDetail]:
    """Have a paused sweep go on; the time that it was paused counts for no budget.

    One that is queued or runs stays as it is; a finished one: 409.
    """
    return SweepDetail.of_sweep(app, app.store.control.resume(sweep.id, now=app.clock.now()))


@router.post("/sweeps/{sweep_id}/budget", responses=problems(400, 404, 409, 422))
def change_budget(
    app: AppOf, caller: CallerOf, sweep: OwnSweepOf, body: Document[BudgetChange]
) -> Document[SweepDetail]:
    """Give a sweep another budget, each limit for the whole sweep, what it has spent included.

    A finished sweep is opened again, and goes on where it ended; a budget by which it would end at once is refused with
    422. One that tried every layout, died, or was started by a retune or an MFU gate: 409.
    """
    limits, now = body.budget, app.clock.now()
    return SweepDetail.of_sweep(app, app.store.control.change_budget(sweep.id, limits, now=now, caller=caller))


@router.post(
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
) -> Document[SweepDetail]:
    """Queue a sweep of the caller that is asked for as another was, but for what the body says.

    It knows nothing of the other but what every new sweep learns from stored trials. `Idempotency-Key` is as for a new
    sweep.
    """
    clone, is_new = app.create_sweep(body.resolved(app, sweep.request), idempotency_key, caller)
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = request.url_for("read_sweep", sweep_id=clone.id).path
    return SweepDetail.of_sweep(app, clone)


@router.post("/trials/{trial_id}/rerun", responses=problems(404, 409, 422))
def rerun_trial(app: AppOf, caller: CallerOf, trial_id: TrialId) -> Document[SweepDetail]:
    """Have a trial that has ended run again, by itself, once what runs has ended.

    The new trial repeats the first of its layout that was measured, and tells how far equal runs differ; where none
    was measured, it is ranked. A finished sweep is opened again to do that alone. While one waits or runs, asking again
    changes nothing. A trial that has not ended, a spent budget, and a sweep that a retune or an MFU gate started: 409.
    """
    sweep = app.store.get_sweep(app.store.get_trial(trial_id).sweep_id)
    caller.require_own("sweep", sweep.id, sweep.created_by)
    return SweepDetail.of_sweep(app, app.store.control.rerun(trial_id, now=app.clock.now(), caller=caller))
