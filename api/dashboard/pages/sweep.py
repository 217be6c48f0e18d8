"""The pages of one sweep: whole, or the part that a script asks for; what people change of it; its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import RedirectResponse

from api.dashboard.forms import SentOf, text_in
from api.dashboard.render import page, report_page
from api.dashboard.views.address import Address
from api.dashboard.views.sweep import LIMITS, SweepLook
from api.dependencies import AppOf, CallerOf, SweepOf
from autotuner.core import documents
from autotuner.core.access import Caller
from autotuner.core.errors import Conflict, InvalidInput, QuotaExceeded
from autotuner.core.run import Stop
from autotuner.core.sweep import Budget, Sweep
from autotuner.core.sweep_requests import BudgetChange
from autotuner.core.text import to_document
from autotuner.report.jobs import LAYERS, layers_report
from autotuner.report.report import Notice, Report, Section
from autotuner.search.explain.layers import SweepLayers, layer_report, measured_layers
from autotuner.service.build import App

# The page of one sweep: answer, ranking, pictures, what failed; whole, or the part that a script asks for.

router = APIRouter(include_in_schema=False, default_response_class=Response)

Part = Literal["live", "ranking", "heat", "metric_front"]
"""Part of the page that a script replaces: everything that changes while a sweep runs, the ranking, two of its choices,
or the Pareto front."""

_WHOLE = "sweep/sweep.html"


@router.get("/sweeps/{sweep_id}")
def sweep_page(
    request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, part: Annotated[Part | None, Query()] = None
) -> Response:
    """Show one sweep: what to train with, its state, its ranking, what runs and what failed."""
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
            return page(request, _WHOLE, **look.of_all(with_predicted=False))


def show_sweep(
    request: Request, app: App, caller: Caller, sweep: Sweep, *, refused: str, status: HTTPStatus
) -> Response:
    """The page with why it was not changed as somebody asked."""
    look = _look(request, app, caller, sweep)
    return page(request, _WHOLE, status=status, **{**look.of_all(with_predicted=False), "refused": refused})


def _look(request: Request, app: App, caller: Caller, sweep: Sweep) -> SweepLook:
    root: str = request.scope.get("root_path", "")
    return SweepLook(app=app, caller=caller, sweep=sweep, address=Address.of(request), root=root)


# What people change of a sweep from its page: forms that work without a script, and lead back to it.

_UNLIMITED = {each.name: None for each in fields(Budget) if each.default is None}
"""Values of empty inputs, for limits that a sweep need not have."""


@router.post("/sweeps/{sweep_id}/pause")
def pause(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Pause the sweep until it is resumed."""
    return _changed(request, app, caller, sweep, lambda: app.stop(sweep.id, Stop.PAUSE, caller=caller))


@router.post("/sweeps/{sweep_id}/resume")
def resume(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Resume the sweep."""
    return _changed(request, app, caller, sweep, lambda: app.resume(sweep.id, caller=caller))


@router.post("/sweeps/{sweep_id}/cancel")
def cancel(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf) -> Response:
    """Ask for its end."""
    return _changed(request, app, caller, sweep, lambda: app.stop(sweep.id, caller=caller))


@router.post("/sweeps/{sweep_id}/budget")
def change_budget(request: Request, app: AppOf, caller: CallerOf, sweep: SweepOf, given: SentOf) -> Response:
    """Give it another budget; a finished sweep is opened again."""

    def change() -> None:
        texts = {one.name: text_in(one, dict(given)) or "" for one in LIMITS}
        said = to_document(LIMITS, texts).get("budget", {})
        asked = documents.read(BudgetChange, {"budget": _UNLIMITED | said})
        app.change(sweep.id, asked.budget, caller=caller)

    return _changed(request, app, caller, sweep, change)


def _changed(request: Request, app: App, caller: Caller, sweep: Sweep, change: Callable[[], None]) -> Response:
    """Back to the page; where the change was refused, the page that says why."""
    try:
        change()
    except (Conflict, InvalidInput, QuotaExceeded) as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY if isinstance(error, InvalidInput) else HTTPStatus.CONFLICT
        return show_sweep(request, app, caller, sweep, refused=str(error), status=status)
    return RedirectResponse(f"{request.scope.get('root_path', '')}/sweeps/{sweep.id}", HTTPStatus.SEE_OTHER)


# The page of a sweep's layers of communication: what each gives, predicted and among trials.


@router.get("/sweeps/{sweep_id}/layers")
def layers_page(request: Request, app: AppOf, sweep: SweepOf) -> Response:
    """Show the gain of each communication layer for the sweep's job, or that the job fits nowhere."""
    kept, whole = app.kept_trials.of(sweep.id), sweep.request.job
    job = f"{whole.model.name} on {whole.cluster.name}"
    name, measured = sweep.request.name or sweep.id, measured_layers(sweep.request.objective, kept.trials)
    try:
        predicted = kept.once("layers", lambda: app.asides.search(layer_report, sweep.request.job, sweep.request.space))
        report = layers_report(SweepLayers(predicted=predicted, measured=measured), job, is_of_sweep=True)
    except InvalidInput as error:
        report = Report(
            headline=LAYERS,
            sections=(Section(blocks=(Notice(words=f"{error}.", look="bad"),)),),
        )
    return report_page(request, report, parent=(name, f"/sweeps/{sweep.id}"))
