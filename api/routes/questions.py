"""Questions that need no trial: predictions, plans, phases, explanations, comparisons, exports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from autotuner.api.dependencies import AppOf, SweepOf, TrialId
from autotuner.api.edge.auth import needs
from autotuner.api.layout_candidates import asked_about
from autotuner.api.openapi import problems
from autotuner.api.routes.runs import new_run
from autotuner.core.access import Scope
from autotuner.core.choices import ExportFormat, ExportLauncher
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
from autotuner.exports.shared.target import Export, Format, Imported
from autotuner.search.explain.bandwidth import BandwidthCurve, bandwidth_curve
from autotuner.search.explain.explanation import Explanation, TrialParts, explain, trial_parts
from autotuner.search.explain.layers import LayerReport
from autotuner.search.explain.link_timelines import LinkTimelines, trial_link_timelines
from autotuner.search.explain.timeline import TrialTimelines, trial_timelines
from autotuner.search.planning.phases import PhasesPlan
from autotuner.search.planning.plan import PlanRun
from autotuner.search.planning.request import PlanRequest
from autotuner.search.preview import PredictionTable
from autotuner.search.results.layout_comparison import LayoutComparison, side_by_side
from autotuner.search.results.pairs import MeasuredRules
from autotuner.service.build import App

# Predictions without a sweep.

predictions_router = APIRouter(prefix="/predictions", tags=["predictions"])


@predictions_router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def predict(app: AppOf, body: Document[PredictionRequest]) -> Document[PredictionTable]:
    """Predict one layout, or find the best layouts of a search space, without running anything.

    With `layout`, the table has one row for this layout. Without `layout`, the table has the best `limit` layouts that
    are predicted to fit, ranked by the product of predicted MFU and probability to fit. The answer then also has the
    number of legal layouts, the number of layouts that fit, and the gain to expect from options outside the space. If
    no layout fits, `items` is empty, and `shortfall` has the missing bytes, changes that would help, and the smallest
    cluster that would suffice. With `current` (the present layout), the answer has the gain of the best layouts over
    the present layout, or the rules that the present layout breaks. With `format`, only layouts that this trainer
    supports are searched.
    """
    return app.predict(body)


# Plans: where to invest for a training run.

plans_router = APIRouter(prefix="/plans", tags=["plans"])

_STILL_COMPUTED = {
    "model": Document[PlanRun],
    "description": "The plan is still being computed. The header Location is the address that shows its progress.",
}


@plans_router.post("", responses={202: _STILL_COMPUTED, **problems(400, 404, 422)}, openapi_extra=needs(Scope.READ))
def create_plan(request: Request, response: Response, app: AppOf, body: Document[PlanRequest]) -> Document[PlanRun]:
    """Compare whole clusters for a training run: the best choice, the gain of larger ones, and what to try first.

    The clusters come from the catalog and from the request, and may be hypothetical. The best predicted layout of each
    cluster gives the time, cost and energy of the run with 80 % intervals, and the Pareto front of time and cost. The
    answer also has the gain of one more node, of twice the network bandwidth and of 40 GB more memory. It proposes
    small sweeps whose results would improve the choice by more than the sweeps cost. Equal requests share one plan with
    the same id, until the release or its catalog changes. Nothing runs on a cluster.
    """
    plan = new_run(PlanRun, request, response, app.start(body))
    response.status_code = 200 if plan.state.is_finished else 202
    return plan


# The layout of each phase of a job.

job_phases_router = APIRouter(prefix="/job-phases", tags=["predictions"])


@job_phases_router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def plan_job_phases(app: AppOf, body: Document[PhasesRequest]) -> Document[PhasesPlan]:
    """Predict the best layout for each phase of a job, without running anything.

    A switch between two layouts costs the time to write a checkpoint, restart the ranks and read the checkpoint, so a
    phase may keep the layout of the phase before it. A course is a choice of one layout for each phase. The answer has
    the best course, the best courses that never switch (`statics`), and the course in which each phase has its own
    fastest layout (`greedy`).
    """
    return app.phases(body)


# Why a layout is predicted as it is, and what measured layouts teach.

explanations_router = APIRouter(tags=["explanations"])


@explanations_router.post("/explanations", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def explain_layout(app: AppOf, body: Document[ExplanationRequest]) -> Document[Explanation]:
    """Explain a layout without running anything.

    The answer shows how the step time is divided and what limits each part, and how the memory is divided and how near
    it is to the limit. It also has changes of one option: changes that would help, changes that would not fit in
    memory, and changes that cannot run.
    """
    return app.explain(body)


@explanations_router.post("/layer-reports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def report_layers(app: AppOf, body: Document[LayersRequest]) -> Document[LayerReport]:
    """Predict the gain of each layer of communication options for a job: from strategy alone to all five layers.

    The best layout of each layer is searched together with the options of the layers before it, so no layer is worse
    than the layer before it. `gain` says how much better it is. Options of later layers keep their defaults.
    """
    return app.layers(body)


@explanations_router.post("/bandwidth-curves", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def draw_bandwidth_curve(app: AppOf, body: Document[ExplanationRequest]) -> Document[BandwidthCurve]:
    """Predict the fastest way to exchange gradients between a layout's replicas, by the bandwidth between nodes.

    The ways are full exchanges with different sharding, and lossy exchanges. The answer says which way has the shortest
    step at which bandwidth, and below which bandwidth each lossy exchange is faster than every full exchange. ``ways``
    is empty if no network lies between the data-parallel ranks, or if no way fits in memory; ``why_empty`` has the
    reason.
    """
    return app.bandwidth_curve(body)


@explanations_router.get("/trials/{trial_id}/bandwidth-curve", responses=problems(404, 422))
def read_bandwidth_curve(app: AppOf, trial_id: TrialId) -> Document[BandwidthCurve]:
    """Predict the fastest way to exchange gradients at each bandwidth between nodes, for the layout of a trial.

    The answer is that of ``POST /bandwidth-curves`` for the layout on the cluster of the trial's sweep.
    """
    trial, request = _trial(app, trial_id)
    return app.compute.ask(bandwidth_curve, trial.layout, request.job)


@explanations_router.get("/trials/{trial_id}/explanation", responses=problems(404, 422))
def explain_trial(app: AppOf, trial_id: TrialId) -> Document[Explanation]:
    """Explain how a trial's layout uses time and memory, as the present cost model predicts it.

    The route of the trial itself has the measured values.
    """
    trial, request = _trial(app, trial_id)
    return explain(trial.layout, request.trial_job)


def _trial(app: App, trial_id: str) -> tuple[Trial, SweepRequest]:
    """Return a trial and the request of its sweep, updated with what is known about its cluster now."""
    trial = app.store.get_trial(trial_id)
    return trial, app.informed(app.store.get_sweep(trial.sweep_id)).request


@explanations_router.get("/trials/{trial_id}/parts", responses=problems(404, 422))
def read_parts(app: AppOf, trial_id: TrialId) -> Document[TrialParts]:
    """Divide a trial's step and memory into parts, each with its predicted and its measured value.

    The parts of a step are passes, the collectives of each kind of group of ranks, waiting, and the optimizer. Memory
    is divided by pipeline rank.
    """
    return app.compute.ask(trial_parts, *_trial(app, trial_id))


@explanations_router.get("/trials/{trial_id}/timeline", responses=problems(404, 422))
def read_timeline(app: AppOf, trial_id: TrialId) -> Document[TrialTimelines]:
    """Return the timeline of a trial's step: when each pass of each micro-batch begins and ends.

    The timeline is predicted and, if the trial was profiled, also measured. Passes are named as in torch: stage, kind
    (F, B, I or W), micro-batch, such as ``0F3``. Repeated passes are left out of the timeline, and ``folds`` has their
    number. The seconds of each rank by part include the repeated passes.
    """
    return app.compute.ask(trial_timelines, *_trial(app, trial_id))


@explanations_router.get("/trials/{trial_id}/link-timelines", responses=problems(404, 422))
def read_link_timelines(app: AppOf, trial_id: TrialId) -> Document[LinkTimelines]:
    """Return the timelines of a trial's step on nominal links and on slow links.

    The slow links are the links in the field ``link_health`` of the sweep's cluster. If the sweep has a fault trace,
    they are the links in the worst part of the trace. ``messages`` are the transfers between neighbouring stages over
    these links, from send to receive. If no link is slow, ``slow`` is null.
    """
    return app.compute.ask(trial_link_timelines, *_trial(app, trial_id))


@explanations_router.get("/sweeps/{sweep_id}/rules", responses=problems(404, 422))
def read_rules(app: AppOf, sweep: SweepOf) -> Document[MeasuredRules]:
    """Report the effect of each option among a sweep's measured trials.

    The effect of an option comes from pairs of measured layouts that differ only in this option. The answer has the
    number of pairs, the number of pairs that became faster, and the median, least and greatest gain. The options that
    arXiv 2311.05610 studies come first, even without pairs.
    """
    return MeasuredRules.of(app.store.all_trials(sweep.id))


# Layouts side by side.

comparisons_router = APIRouter(tags=["explanations"])


@comparisons_router.post("/comparisons", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def compare_layouts(app: AppOf, body: Document[ComparisonRequest]) -> Document[LayoutComparison]:
    """Compare two to four layouts: of trials, the best of sweeps, explored ones, or a trainer's own flags.

    The answer says how the layouts differ, which layout is faster, whether the difference exceeds the noise, and which
    parts of a step cause the difference. Measured layouts are compared by their measurements, others by predictions.
    Nothing is run or stored.
    """
    found = asked_about(app, body.of, body.flags)
    for _, error in found.problems:
        raise error
    if len(found.asked) < 2:
        raise InvalidInput(
            "of", len(found.asked), "must name two to four different layouts; command-line flags count as one layout", 2
        )
    return app.compute.ask(side_by_side, found.asked)


# Layouts in the words of trainers, and trainers' configurations as layouts.

exports_router = APIRouter(tags=["exports"])


@exports_router.get("/exports/formats", responses=problems())
def list_formats() -> Document[Listed[Format]]:
    """List the export formats, each with its trainer's release and the options that it cannot express.

    For each format, the list also says whether configurations in this format can be imported.
    """
    return Listed.whole([target.described for target in FORMATS.values()])


@exports_router.post("/exports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def export_layout(app: AppOf, body: Document[ExportRequest]) -> Document[Export]:
    """Write a layout as a trainer's arguments or configuration file, with a list of the options it cannot express."""
    return app.export(body)


@exports_router.get("/trials/{trial_id}/export", responses=problems(404, 422))
def export_trial(
    app: AppOf,
    trial_id: TrialId,
    wanted: Annotated[
        ExportFormat, Query(alias="format", description="Format of the trainer to write the layout for.")
    ],
    launcher: Annotated[
        ExportLauncher | None, Query(description="Program that starts your trainer; without it, no script is written.")
    ] = None,
) -> Document[Export]:
    """Write a trial's layout as a trainer's arguments or configuration file, for the job of its sweep."""
    trial = app.store.get_trial(trial_id)
    return export(app.store.get_sweep(trial.sweep_id).request.job, trial.layout, wanted, launcher)


@exports_router.post("/imports", responses=problems(400, 422), openapi_extra=needs(Scope.READ))
def import_configuration(app: AppOf, body: Document[ImportRequest]) -> Document[Imported]:
    """Read the layout from a trainer's configuration, to predict, explain or compare it.

    Shell scripts are parsed and never run. `notes` list what was assumed, changed or ignored.
    """
    return app.import_configuration(body)
