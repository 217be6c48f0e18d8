"""Questions that need no trial: predictions, plans, phases, explanations, comparisons, exports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from autotuner.api.contenders import asked_about
from autotuner.api.dependencies import AppOf, SweepOf, TrialId
from autotuner.api.edge.auth import needs
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import new_run
from autotuner.core.access import Scope
from autotuner.core.choices import ExportFormat
from autotuner.core.documents import Document
from autotuner.core.errors import InvalidInput
from autotuner.core.listed import Listed
from autotuner.core.requests import (
    ComparisonRequest,
    ExplanationRequest,
    ExportRequest,
    ImportRequest,
    LayersRequest,
    PhasesRequest,
    PredictionRequest,
)
from autotuner.core.sweep import SweepRequest
from autotuner.core.trial import Trial
from autotuner.exports.formats import FORMATS, export
from autotuner.exports.target import Export, Format, Imported
from autotuner.search.explain.bandwidth import BandwidthCurve, bandwidth_curve
from autotuner.search.explain.explanation import Explanation, TrialParts, explain, trial_parts
from autotuner.search.explain.layers import LayerReport
from autotuner.search.explain.links import LinkTimelines, trial_link_timelines
from autotuner.search.explain.timeline import TrialTimelines, trial_timelines
from autotuner.search.planning.phases import PhasesPlan
from autotuner.search.planning.plan import PlanRun
from autotuner.search.planning.request import PlanRequest
from autotuner.search.preview import PredictionTable
from autotuner.search.results.comparison import LayoutComparison, side_by_side
from autotuner.search.results.pairs import MeasuredRules
from autotuner.service.build import App

# Predictions without a sweep.

predictions_router = APIRouter(prefix="/predictions", tags=["predictions"])


@predictions_router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def predict(app: AppOf, body: Document[PredictionRequest]) -> Document[PredictionTable]:
    """Predict one layout, or the best of a space, without running anything.

    With `layout` the table has that one row. Without it, the `limit` layouts with the highest predicted MFU x
    probability to fit among those that are predicted to fit, how many layouts are legal and fit at all, and what is
    expected of options that the space leaves out. Where none fits, `items` is empty and `shortfall` says how many bytes
    are missing, which change would help and which cluster would do. With `current`, the layout that runs today, the
    answer says what the best would give in its place; a `current` that breaks rules has their reasons. With `format`,
    only layouts that this trainer can be told are tried.
    """
    return app.predict(body)


# Plans: where to invest for a training run.

plans_router = APIRouter(prefix="/plans", tags=["plans"])

_STILL_COMPUTED = {"model": Document[PlanRun], "description": "It is still computed; its Location says how far."}


@plans_router.post("", responses={202: _STILL_COMPUTED, **problems(400, 404, 422)}, openapi_extra=needs(Scope.READ))
def create_plan(request: Request, response: Response, app: AppOf, body: Document[PlanRequest]) -> Document[PlanRun]:
    """Compare whole clusters for a training run: which to take, what more would buy, what to try first.

    Clusters of the catalog, hypothetical ones and the caller's own, each with its best layout by prediction: time, cost
    and energy of the run with 80 % intervals, the front of time and cost, what one more node, twice the network or 40
    GB more memory would buy, and small sweeps whose results would make the choice surer by more than they cost. The
    same question has the same id and is computed once, until the release or its catalog changes. Nothing runs.
    """
    plan = new_run(PlanRun, request, response, app.start(body))
    response.status_code = 200 if plan.state.is_finished else 202
    return plan


# The layout of each phase of a job.

job_phases_router = APIRouter(prefix="/job-phases", tags=["predictions"])


@job_phases_router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def plan_job_phases(app: AppOf, body: Document[PhasesRequest]) -> Document[PhasesPlan]:
    """Predict the best layout for each phase of a job, without running anything.

    A switch between two layouts costs what writing a checkpoint, starting the ranks anew and reading it take, so that
    a phase may keep the layout before it. The answer holds the best course, the best that stay in one layout
    throughout (`statics`), and what it would take if each phase had its own fastest layout (`greedy`).
    """
    return app.phases(body)


# Why a layout is predicted as it is, and what measured layouts teach.

explanations_router = APIRouter(tags=["explanations"])


@explanations_router.post("/explanations", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def explain_layout(app: AppOf, body: Document[ExplanationRequest]) -> Document[Explanation]:
    """Explain a layout without running anything.

    Where its time goes and what limits each part, how its memory is made up and how far it lies from the limit, and
    the changes of one step that would help, would not fit, or cannot run.
    """
    return app.explain(body)


@explanations_router.post("/layer-reports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def report_layers(app: AppOf, body: Document[LayersRequest]) -> Document[LayerReport]:
    """Search the layers of communication of a job by prediction: strategy alone, with task scheduling, to all five.

    Each layer's best is found with the options of all before it, so that it is no worse; `gain` says how much better.
    Options of later layers stay at their defaults.
    """
    return app.layers(body)


@explanations_router.post("/bandwidth-curves", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def draw_bandwidth_curve(app: AppOf, body: Document[ExplanationRequest]) -> Document[BandwidthCurve]:
    """Predict the ways in which a layout's replicas could share what they learnt, by the bandwidth between nodes.

    Full exchanges with whatever is sharded, and lossy ones; which takes the shortest step where, and below which
    bandwidth each lossy one is faster than every full one. ``ways`` is empty where no network lies between the
    layout's data-parallel ranks, or none fits; ``why_empty`` says which.
    """
    return app.bandwidth_curve(body)


@explanations_router.get("/trials/{trial_id}/bandwidth-curve", responses=problems(404, 422))
def read_bandwidth_curve(app: AppOf, trial_id: TrialId) -> Document[BandwidthCurve]:
    """Predict what ``POST /bandwidth-curves`` does of a trial's layout, on the cluster that the sweep is for."""
    trial, request = _trial(app, trial_id)
    return app.asides.ask(bandwidth_curve, trial.layout, request.job)


@explanations_router.get("/trials/{trial_id}/explanation", responses=problems(404, 422))
def explain_trial(app: AppOf, trial_id: TrialId) -> Document[Explanation]:
    """Explain a trial's layout as today's cost model predicts it; what was measured is in the trial itself."""
    trial, request = _trial(app, trial_id)
    return explain(trial.layout, request.trial_job)


def _trial(app: App, trial_id: str) -> tuple[Trial, SweepRequest]:
    """Return a trial and the request of its sweep, updated with what is known about its cluster now."""
    trial = app.store.get_trial(trial_id)
    return trial, app.informed(app.store.get_sweep(trial.sweep_id)).request


@explanations_router.get("/trials/{trial_id}/parts", responses=problems(404, 422))
def read_parts(app: AppOf, trial_id: TrialId) -> Document[TrialParts]:
    """Divide a trial's step and memory into parts, each as predicted and as measured.

    Passes, the collectives of each kind of group, waiting and the optimizer; memory by pipeline rank.
    """
    return app.asides.ask(trial_parts, *_trial(app, trial_id))


@explanations_router.get("/trials/{trial_id}/timeline", responses=problems(404, 422))
def read_timeline(app: AppOf, trial_id: TrialId) -> Document[TrialTimelines]:
    """Draw a trial's step in time: when each pass of each micro-batch begins and ends, predicted and measured.

    Passes are named as torch names them (``0F3``: stage, F, B, I or W, micro-batch). What repeats is left out and
    counted in ``folds``; the seconds of each rank by part count all of it.
    """
    return app.asides.ask(trial_timelines, *_trial(app, trial_id))


@explanations_router.get("/trials/{trial_id}/link-timelines", responses=problems(404, 422))
def read_link_timelines(app: AppOf, trial_id: TrialId) -> Document[LinkTimelines]:
    """Compare a trial's step with nominal links with the same step with slow ones.

    Slow are the links of the sweep's cluster (``link_health``), or those of the worst stretch of its fault trace.
    ``messages`` are what passes them between neighbouring stages, from send to receive. Where every link is healthy,
    ``slow`` is null.
    """
    return app.asides.ask(trial_link_timelines, *_trial(app, trial_id))


@explanations_router.get("/sweeps/{sweep_id}/rules", responses=problems(404, 422))
def read_rules(app: AppOf, sweep: SweepOf) -> Document[MeasuredRules]:
    """State what the sweep's measured trials say about one choice at a time.

    Pairs of measured layouts that differ in one choice alone: how many there are, how many became faster, and by how
    much in the median and at the ends. The six subjects of arXiv 2311.05610 come first, without pairs too.
    """
    return MeasuredRules.of(app.store.all_trials(sweep.id))


# Layouts side by side.

comparisons_router = APIRouter(tags=["explanations"])


@comparisons_router.post("/comparisons", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def compare_layouts(app: AppOf, body: Document[ComparisonRequest]) -> Document[LayoutComparison]:
    """Set two to four layouts side by side: trials, sweeps by their best, explored ones, a trainer's own flags.

    What differs, which is faster and whether by more than noise, and through which parts of a step. What was measured
    is compared as measured, anything else as predicted; nothing is run or stored.
    """
    found = asked_about(app, body.of, body.flags)
    for _, error in found.problems:
        raise error
    if len(found.asked) < 2:
        raise InvalidInput("of", len(found.asked), "must name two to four different layouts; flags count as one", 2)
    return app.asides.ask(side_by_side, found.asked)


# Layouts in the words of trainers, and trainers' configurations as layouts.

exports_router = APIRouter(tags=["exports"])


@exports_router.get("/exports/formats", responses=problems())
def list_formats() -> Document[Listed[Format]]:
    """List the formats that a layout can be written in: of which release, what they cannot say, which are read back."""
    return Listed.whole([target.described for target in FORMATS.values()])


@exports_router.post("/exports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def export_layout(app: AppOf, body: Document[ExportRequest]) -> Document[Export]:
    """Write a layout down as a trainer's arguments or configuration file, with what these cannot say."""
    return app.export(body)


@exports_router.get("/trials/{trial_id}/export", responses=problems(404, 422))
def export_trial(
    app: AppOf,
    trial_id: TrialId,
    wanted: Annotated[ExportFormat, Query(alias="format", description="Whose words are wanted.")],
) -> Document[Export]:
    """Write a trial's layout down as a trainer's arguments or configuration file, for the job of its sweep."""
    trial = app.store.get_trial(trial_id)
    return export(app.store.get_sweep(trial.sweep_id).request.job, trial.layout, wanted)


@exports_router.post("/imports", responses=problems(400, 422), openapi_extra=needs(Scope.READ))
def import_configuration(app: AppOf, body: Document[ImportRequest]) -> Document[Imported]:
    """Read a trainer's configuration as a layout: what you run today, to predict, explain and compare.

    Shell scripts are read, never run. `notes` say what was assumed, changed and ignored on the way.
    """
    return app.import_configuration(body)
