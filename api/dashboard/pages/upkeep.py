"""The pages of scheduled retunings and of performance regression gates: the lists, and one of each with its results."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from autotuner.api.dashboard.render import report_page, service_of
from autotuner.api.dependencies import AppOf, CallerOf, Name, OwnRetuneOf, RunId
from autotuner.core.documents import MAX_INTEGER
from autotuner.core.upkeep import GateRun
from autotuner.report.gate import gate_report, gates_report
from autotuner.report.report import Pager
from autotuner.report.retune import retune_report, retunes_report
from autotuner.store.options import Page

# The pages of retunes: all of them, and one with its trend and its runs.

router = APIRouter(include_in_schema=False, default_response_class=Response)

_RUNS_READ = 120
"""Number of runs that are read: enough for the trend, although some runs measured nothing."""

_Part = Annotated[Literal["live"] | None, Query()]


@router.get("/retunes")
def retunes_page(request: Request, app: AppOf, part: _Part = None) -> Response:
    """Show all retunes (sweeps that start again on a schedule) by name: when each is due, how its last run ended."""
    report = retunes_report(app.store.retunes.list(), service_of(request))
    return report_page(request, report, part=part, every_s=3)


@router.get("/retunes/{name}")
def retune_page(request: Request, app: AppOf, caller: CallerOf, name: Name, part: _Part = None) -> Response:
    """Show one retune (a scheduled search for a better layout): how its last run ended, and its newest runs.

    The page also shows the result of the layout in use in each run.
    """
    retune, (runs, total) = app.store.retunes.get(name), app.store.retunes.runs(name, page=Page(limit=_RUNS_READ))
    has_buttons = caller.may_change(retune.created_by)
    report = retune_report(retune, runs, total, service_of(request), has_buttons=has_buttons)
    own = f"/api/v1/retunes/{quote(name)}"
    return report_page(request, report, part=part, every_s=3, parent=("All retunes", "/retunes"), json=own)


@router.post("/retunes/{name}/run")
def run_retune(request: Request, app: AppOf, caller: CallerOf, retune: OwnRetuneOf) -> Response:
    """Start a run of the retune (a scheduled search for a better layout) now, and redirect to the retune's page."""
    app.retuning.run_now(retune.name, caller)
    return _back(request, f"/retunes/{quote(retune.name)}")


@router.post("/retunes/{name}/pause")
def pause_retune(request: Request, app: AppOf, retune: OwnRetuneOf) -> Response:
    """Pause the retune, so that its schedule starts no more runs, and redirect to its page. A running one continues."""
    app.retuning.pause(retune.name)
    return _back(request, f"/retunes/{quote(retune.name)}")


@router.post("/retunes/{name}/resume")
def resume_retune(request: Request, app: AppOf, retune: OwnRetuneOf) -> Response:
    """Resume the paused retune, so that its schedule starts runs again, and redirect to its page."""
    app.retuning.resume(retune.name)
    return _back(request, f"/retunes/{quote(retune.name)}")


def _back(request: Request, path: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{path}", 303)


# The pages of performance regression gates: all of them with the baselines, and one with what it measured.

_GATES_PER_PAGE = 50

_Number = Annotated[int, Query(ge=1, le=MAX_INTEGER // _GATES_PER_PAGE)]


@router.get("/gates")
def gates_page(request: Request, app: AppOf, part: _Part = None, number: _Number = 1) -> Response:
    """Show all performance regression gates, newest first, and the baselines that they are compared with."""
    window = Page(limit=_GATES_PER_PAGE, offset=(number - 1) * _GATES_PER_PAGE)
    gates, total = app.store.runs.list(GateRun, page=window)
    pager = Pager.of("gates", number, is_last=window.offset + window.limit >= total)
    report = gates_report(gates, total, app.store.regression_gates.list_baselines(), service_of(request), pager)
    return report_page(request, report, part=part, every_s=3)


@router.get("/gates/{gate_id}")
def gate_page(request: Request, app: AppOf, caller: CallerOf, gate_id: RunId, part: _Part = None) -> Response:
    """Show one performance regression gate: its outcome, its measurements next to its baseline, and what else changed.

    The other changes are those of the environment, such as software versions.
    """
    gate = app.store.runs.get(GateRun, gate_id)
    every_s = None if gate.result else 3
    own = f"/api/v1/runs/{gate_id}"
    report = gate_report(gate, has_buttons=caller.may_change(gate.created_by))
    return report_page(request, report, part=part, every_s=every_s, parent=("All gates", "/gates"), json=own)


@router.post("/gates/{gate_id}/cancel")
def cancel_gate(request: Request, app: AppOf, caller: CallerOf, gate_id: RunId) -> Response:
    """Cancel a performance regression gate and its trials, and redirect to the gate's page."""
    app.stop(gate_id, caller=caller)
    return _back(request, f"/gates/{gate_id}")
