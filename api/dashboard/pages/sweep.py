"""The pages of one sweep: the whole page or a part of it, the forms that change the sweep, and its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from autotuner.api.dashboard.forms import Asked, SentOf, errors_of, text_in
from autotuner.api.dashboard.render import page, report_page
from autotuner.api.dashboard.views.address import Address
from autotuner.api.dashboard.views.sweep import LIMITS, SweepLook
from autotuner.api.dependencies import AppOf, CallerOf, RunId, SweepId, SweepOf, TrialId
from autotuner.core import documents
from autotuner.core.access import Caller, Scope
from autotuner.core.comment import CommentCreate
from autotuner.core.errors import Conflict, InvalidInput, QuotaExceeded
from autotuner.core.run import Stop
from autotuner.core.sweep import Budget, Sweep
from autotuner.core.sweep_requests import BudgetChange
from autotuner.core.text import inputs_of, to_document
from autotuner.core.trial import trial_id as trial_id_of
from autotuner.report.comments import comments_section
from autotuner.report.jobs import LAYERS, layers_report
from autotuner.report.report import Notice, Report, Section
from autotuner.search.explain.layers import SweepLayers, layer_report, measured_layers
from autotuner.service.build import App
from autotuner.store.options import Page

# The page of one sweep: answer, ranking, pictures, what failed; whole, or the part that a script asks for.

router = APIRouter(include_in_schema=False, default_response_class=Response)

Part = Literal["live", "ranking", "heat", "metric_front"]
"""Parts of the page that a script replaces: everything that changes while a sweep runs, the ranking, the heat map of
two options, and the Pareto front."""

_WHOLE = "sweep/sweep.html"


@router.get("/sweeps/{sweep_id}")
def sweep_page(
    request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, part: Annotated[Part | None, Query()] = None
) -> Response:
    """Show one sweep: its recommended layout, its state, its ranking, its running trials and its failures."""
    look = _look(request, app, caller, sweep)
    match part:
        case "ranking":
            return page(request, "sweep/_ranking.html", **look.of_ranking())
        case "heat":
            return page(request, "sweep/_heat.html", **look.of_pairs())
        case "metric_front":
            return page(request, "sweep/_metric_front.html", **look.of_front())
        case "live":
            return page(request, "sweep/_live.html", **look.of_all(with_predicted=True))
        case None:
            shown = comments_on(app, caller, sweep.id)
            return page(request, _WHOLE, **look.of_all(with_predicted=False), **shown)


def show_sweep(
    request: Request, app: App, caller: Caller, sweep: Sweep, *, refused: str, status: HTTPStatus
) -> Response:
    """Return the page of a sweep with a message that says why the requested change was refused.

    Args:
        request: The request for the change.
        app: The application that the page reads from.
        caller: The caller who asked for the change.
        sweep: The sweep, as it is stored.
        refused: The reason of the refusal, in words.
        status: HTTP status of the answer.
    """
    look = _look(request, app, caller, sweep)
    shown = {**look.of_all(with_predicted=False), **comments_on(app, caller, sweep.id), "refused": refused}
    return page(request, _WHOLE, status=status, **shown)


def _look(request: Request, app: App, caller: Caller, sweep: Sweep) -> SweepLook:
    root: str = request.scope.get("root_path", "")
    return SweepLook(app=app, caller=caller, sweep=sweep, address=Address.of(request), root=root)


# Changes of a sweep from its page: forms that work without a script, and lead back to it.

_UNLIMITED = {each.name: None for each in fields(Budget) if each.default is None}
"""Values that empty inputs have for limits that are optional."""


@router.post("/sweeps/{sweep_id}/pause")
def pause(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Pause the sweep until it is resumed, and redirect to its page.

    A running trial is stopped, and starts again from its beginning later.
    """
    return _changed(request, app, caller, sweep, lambda: app.stop(sweep.id, Stop.PAUSE, caller=caller))


@router.post("/sweeps/{sweep_id}/resume")
def resume(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Resume the paused sweep, which is then queued for a worker, and redirect to its page."""
    return _changed(request, app, caller, sweep, lambda: app.resume(sweep.id, caller=caller))


@router.post("/sweeps/{sweep_id}/cancel")
def cancel(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Cancel the sweep and its running trial, and redirect to its page. The results so far are kept."""
    return _changed(request, app, caller, sweep, lambda: app.stop(sweep.id, caller=caller))


@router.post("/sweeps/{sweep_id}/budget")
def change_budget(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, given: SentOf) -> Response:
    """Replace the budget of the sweep, and redirect to its page. A finished sweep is opened again, and continues."""

    def change() -> None:
        texts = {one.name: text_in(one, dict(given)) or "" for one in LIMITS}
        said = to_document(LIMITS, texts).get("budget", {})
        asked = documents.read(BudgetChange, {"budget": _UNLIMITED | said})
        app.change(sweep.id, asked.budget, caller=caller)

    return _changed(request, app, caller, sweep, change)


def _changed(request: Request, app: App, caller: Caller, sweep: Sweep, change: Callable[[], None]) -> Response:
    """Make the change, and redirect to the page of the sweep.

    If the change is refused, return the page with the reason.
    """
    try:
        change()
    except (Conflict, InvalidInput, QuotaExceeded) as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY if isinstance(error, InvalidInput) else HTTPStatus.CONFLICT
        return show_sweep(request, app, caller, sweep, refused=str(error), status=status)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/sweeps/{sweep.id}", HTTPStatus.SEE_OTHER)


# Comments on a sweep or a trial, below either's page: a list, and a form to write one.

_COMMENT = inputs_of(CommentCreate)
_NEWEST_COMMENTS = Page(limit=100)


def comments_on(
    app: App, caller: Caller, sweep_id: str, trial_number: int | None = None, given: Asked | None = None
) -> dict[str, Any]:
    """Return the template values for the section of comments: the comments on a sweep or on one trial, and the form.

    Args:
        app: The application that stores the comments.
        caller: The reader of the page, who may remove their own comments.
        sweep_id: Id of the sweep.
        trial_number: Number of the trial whose comments are shown; None: the comments of the whole sweep.
        given: The form as it was sent, if it was refused; None: an empty form.
    """
    found, total = app.store.comments.list(sweep_id, trial_number=trial_number, page=_NEWEST_COMMENTS)
    empty = Asked(texts={"text": "", "tag": "", "trial": "" if trial_number is None else str(trial_number)})
    return {
        "comments": comments_section(
            found,
            total,
            is_of_trial=trial_number is not None,
            may_remove=lambda one: caller.may_change(one.created_by),
        ),
        "comment": given or empty,
        "may_comment": caller.scope.covers(Scope.RUN),
    }


@router.post("/sweeps/{sweep_id}/comments")
def write_comment(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, given: SentOf) -> Response:
    """Store a comment on a sweep or trial, and redirect to the page of that sweep or trial.

    If the comment is refused, the page of the sweep shows the form again, with the text and the reason.
    """
    texts = {one.name: (text_in(one, dict(given)) or "").replace("\r\n", "\n") for one in _COMMENT}
    try:
        asked = documents.read(CommentCreate, to_document(_COMMENT, texts))
    except InvalidInput as error:
        refused = Asked(texts=texts, errors=errors_of(_COMMENT, error))
        look = _look(request, app, caller, sweep).of_all(with_predicted=False)
        shown = {
            **look,
            **comments_on(app, caller, sweep.id, given=refused),
            "refused": f"the comment is not stored: {error}",
        }
        return page(request, _WHOLE, status=HTTPStatus.UNPROCESSABLE_ENTITY, **shown)
    written = app.store.comments.add(sweep.id, asked, now=app.clock.now(), caller=caller)
    if written.trial_number is None:
        return _to_comments(request, f"sweeps/{sweep.id}")
    return _to_comments(request, f"trials/{trial_id_of(sweep.id, written.trial_number)}")


@router.post("/sweeps/{sweep_id}/comments/{comment_id}/delete")
def delete_comment(request: Request, app: AppOf, caller: CallerOf, sweep_id: SweepId, comment_id: RunId) -> Response:
    """Remove a comment on a sweep, and redirect to the sweep's page. Only its author and admins may remove it."""
    app.store.comments.remove(comment_id, caller=caller)
    return _to_comments(request, f"sweeps/{sweep_id}")


@router.post("/trials/{trial_id}/comments/{comment_id}/delete")
def delete_comment_on_trial(
    request: Request, app: AppOf, caller: CallerOf, trial_id: TrialId, comment_id: RunId
) -> Response:
    """Remove a comment on a trial, and redirect to the trial's page. Only its author and admins may remove it."""
    app.store.comments.remove(comment_id, caller=caller)
    return _to_comments(request, f"trials/{trial_id}")


def _to_comments(request: Request, path: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{path}#comments", HTTPStatus.SEE_OTHER)


# The page of a sweep's layers of communication: what each gives, predicted and among trials.


@router.get("/sweeps/{sweep_id}/layers")
def layers_page(request: Request, app: AppOf, sweep: SweepOf) -> Response:
    """Show the gain of each layer of communication options for the job of a sweep, as predicted and among its trials.

    A layer is a group of options: parallel strategy, task scheduling, collectives, flow scheduling, network.
    """
    kept, whole = app.kept_trials.of(sweep.id), sweep.request.job
    job = f"{whole.model.name} on {whole.cluster.name}"
    name, measured = sweep.request.name or sweep.id, measured_layers(sweep.request.objective, kept.trials)
    try:
        predicted = kept.once(
            "layers", lambda: app.compute.search(layer_report, sweep.request.job, sweep.request.space)
        )
        report = layers_report(SweepLayers(predicted=predicted, measured=measured), job, is_of_sweep=True)
    except InvalidInput as error:
        report = Report(
            headline=LAYERS,
            sections=(Section(blocks=(Notice(words=f"{error}.", look="bad"),)),),
        )
    return report_page(request, report, parent=(name, f"/sweeps/{sweep.id}"))
