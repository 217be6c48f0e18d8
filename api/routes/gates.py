"""Performance regression gates of changes, which CI systems create and read, and their baselines."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from autotuner.api.dependencies import AppOf, CallerOf, Name, RunId
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import new_run
from autotuner.core.documents import Document
from autotuner.core.errors import NotFound
from autotuner.core.listed import Listed
from autotuner.core.sweep_requests import GateCreate
from autotuner.core.upkeep import Baseline, GateRun
from autotuner.report.ci import GateCase, badge_svg, junit_xml, measured_case
from autotuner.report.gate import gate_report
from autotuner.report.markdown import markdown
from autotuner.service.build import App
from autotuner.store.options import Page

router = APIRouter(tags=["gates"])

_Key = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="Key of the job, as the list of baselines shows it.")]

_NEWEST = 20
"""Number of newest gates in which the last one of a branch is searched."""


def _content(media_type: str) -> dict[str, Any]:
    return {"content": {media_type: {}}}


@router.post("/gates", status_code=201, responses=problems(400, 404, 422, 429))
def create_gate(
    request: Request, response: Response, app: AppOf, caller: CallerOf, body: Document[GateCreate]
) -> Document[GateRun]:
    """Start a performance regression gate: measure whether a change makes training slower than a stored baseline.

    The gate repeats its runs until it can decide. It fails if training is slower by more than the tolerance and the
    difference exceeds the measured noise. If an earlier gate measured the same layout with the same software, its runs
    are reused, and the new gate is finished at once.
    """
    return new_run(GateRun, request, response, app.start(body, caller=caller))


@router.get(
    "/gates/{gate_id}/junit.xml",
    response_class=Response,
    responses={200: _content("application/xml"), **problems(404, 422)},
)
def read_gate_junit(app: AppOf, gate_id: RunId) -> Response:
    """Read a performance regression gate as JUnit XML with one test case, which passed, failed or had an error.

    While the gate runs, the test case is marked as skipped.
    """
    return Response(junit_xml(_case(app, gate_id)), media_type="application/xml")


@router.get(
    "/gates/{gate_id}/summary.md",
    response_class=Response,
    responses={200: _content("text/markdown"), **problems(404, 422)},
)
def read_gate_summary(app: AppOf, gate_id: RunId) -> Response:
    """Read a performance regression gate as Markdown, for the summary of a CI job or a comment."""
    return Response(markdown(gate_report(app.store.runs.get(GateRun, gate_id))), media_type="text/markdown")


@router.get(
    "/gates/{gate_id}/badge.svg",
    response_class=Response,
    responses={200: _content("image/svg+xml"), **problems(404, 422)},
)
def read_gate_badge(app: AppOf, gate_id: RunId) -> Response:
    """Read a performance regression gate as an SVG badge: its MFU, in a colour that shows the outcome."""
    return _badge(_case(app, gate_id))


@router.get("/baselines", responses=problems())
def list_baselines(app: AppOf) -> Document[Listed[Baseline]]:
    """List the baselines by name. A performance regression gate compares the speed of a change with a baseline.

    A name has one baseline for each job.
    """
    return Listed.whole(app.store.regression_gates.list_baselines())


@router.delete("/baselines/{name}/{key}", responses=problems(404, 422))
def remove_baseline(app: AppOf, caller: CallerOf, name: Name, key: _Key) -> Document[Baseline]:
    """Remove a baseline. The next gate with `sets_baseline` then stores its own result as the baseline.

    In this way, people accept a slowdown. Only the caller whose gate set the baseline and admins may do this. The
    answer is the removed baseline.
    """
    baseline = app.store.regression_gates.get_baseline(name, key)
    if baseline is None:
        raise NotFound("baseline", name)
    caller.require_own("baseline", name, app.store.runs.get(GateRun, baseline.gate_id).created_by)
    app.store.regression_gates.remove_baseline(name, key)
    return baseline


@router.get(
    "/badges/{name}",
    response_class=Response,
    responses={200: _content("image/svg+xml"), **problems(404, 422)},
)
def read_baseline_badge(app: AppOf, name: Name) -> Response:
    """Read the SVG badge of a baseline, for instance for a README: the MFU of the newest gate that may set it.

    Only finished gates count.
    """
    gates, _ = app.store.runs.list(GateRun, subject=name, page=Page(limit=_NEWEST))
    for gate in gates:
        if gate.request.gate.sets_baseline and gate.result is not None:
            return _badge(measured_case(gate, now=app.clock.now()))
    raise NotFound("finished gate that sets the baseline", name)


def _case(app: App, gate_id: str) -> GateCase:
    return measured_case(app.store.runs.get(GateRun, gate_id), now=app.clock.now())


def _badge(case: GateCase) -> Response:
    return Response(badge_svg(case), media_type="image/svg+xml", headers={"Cache-Control": "no-cache"})
