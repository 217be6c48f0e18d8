"""Why a layout is predicted as it is, and what measured layouts teach."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf, SweepOf, TrialId
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import (
    BandwidthCurve,
    ExplanationRequest,
    LayerReport,
    LayersRequest,
    LayoutExplanation,
    LinkTimelines,
    SweepRules,
    TrialParts,
    TrialTimelines,
)
from autotuner.core.access import Scope
from autotuner.core.documents import Document
from autotuner.core.rules.legality import reasons, refused_layout
from autotuner.search.explain.bandwidth_curve import bandwidth_curve, trial_bandwidth_curve
from autotuner.search.explain.explanation import explain
from autotuner.search.explain.layers import layer_report
from autotuner.search.explain.link_timelines import trial_link_timelines
from autotuner.search.explain.trial_parts import trial_parts
from autotuner.search.explain.trial_timelines import trial_timelines
from autotuner.search.sweeps.history import all_trials

router = APIRouter(tags=["explanations"])


@router.post("/explanations", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def explain_layout(app: AppOf, body: Document[ExplanationRequest]) -> Document[LayoutExplanation]:
    """Explain a layout without running anything.

    Where its time goes and what limits each part, how its memory is made up and how far it lies from the limit, and
    the changes of one step that would help, would not fit, or cannot run.
    """
    job = body.resolved(app)
    if broken := reasons(body.layout, job):
        raise refused_layout(body.layout, broken)
    return LayoutExplanation.of(app.asides.ask(explain, body.layout, job), job.model)


@router.post("/layer-reports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def report_layers(app: AppOf, body: Document[LayersRequest]) -> Document[LayerReport]:
    """Search the layers of communication of a job by prediction: strategy alone, with task scheduling, to all five.

    Each layer's best is found with the options of all before it, so that it is no worse; `gain` says how much better.
    Options of later layers stay at their defaults.
    """
    return app.asides.search(layer_report, body.resolved(app))


@router.post("/bandwidth-curves", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def draw_bandwidth_curve(app: AppOf, body: Document[ExplanationRequest]) -> Document[BandwidthCurve]:
    """Predict the ways in which a layout's replicas could share what they learnt, by the bandwidth between nodes.

    Full exchanges with whatever is sharded, and lossy ones; which takes the shortest step where, and below which
    bandwidth each lossy one is faster than every full one. ``ways`` is empty where no network lies between the
    layout's data-parallel ranks, and ``sentences`` say so.
    """
    job = body.resolved(app)
    if broken := reasons(body.layout, job):
        raise refused_layout(body.layout, broken)
    return app.asides.ask(bandwidth_curve, body.layout, job)


@router.get("/trials/{trial_id}/bandwidth-curve", responses=problems(404, 422))
def read_bandwidth_curve(app: AppOf, trial_id: TrialId) -> Document[BandwidthCurve]:
    """Predict what ``POST /bandwidth-curves`` does of a trial's layout, on the cluster that the sweep is for."""
    trial = app.store.get_trial(trial_id)
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    return app.asides.ask(trial_bandwidth_curve, trial, request)


@router.get("/trials/{trial_id}/explanation", responses=problems(404, 422))
def explain_trial(app: AppOf, trial_id: TrialId) -> Document[LayoutExplanation]:
    """Explain a trial's layout as today's cost model predicts it; what was measured is in the trial itself."""
    return LayoutExplanation.of_trial(app, app.store.get_trial(trial_id))


@router.get("/trials/{trial_id}/parts", responses=problems(404, 422))
def read_parts(app: AppOf, trial_id: TrialId) -> Document[TrialParts]:
    """Divide a trial's step and memory into parts, each as predicted and as measured.

    Passes, the collectives of each kind of group, waiting and the optimizer; memory by pipeline rank.
    """
    trial = app.store.get_trial(trial_id)
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    return app.asides.ask(trial_parts, trial, request)


@router.get("/trials/{trial_id}/timeline", responses=problems(404, 422))
def read_timeline(app: AppOf, trial_id: TrialId) -> Document[TrialTimelines]:
    """Draw a trial's step in time: when each pass of each micro-batch begins and ends, predicted and measured.

    Passes are named as torch names them (``0F3``: stage, F, B, I or W, micro-batch). What repeats is left out and
    counted in ``folds``; the seconds of each rank by part count all of it.
    """
    trial = app.store.get_trial(trial_id)
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    return app.asides.ask(trial_timelines, trial, request)


@router.get("/trials/{trial_id}/link-timelines", responses=problems(404, 422))
def read_link_timelines(app: AppOf, trial_id: TrialId) -> Document[LinkTimelines]:
    """Lay a trial's step with healthy links beside the same step with slow ones.

    Slow are the links of the sweep's cluster (``link_health``), or those of the worst stretch of its fault trace.
    ``messages`` are what passes them between neighbouring stages, from send to receive. Where every link is healthy,
    ``slow`` is null.
    """
    trial = app.store.get_trial(trial_id)
    request = app.informed(app.store.get_sweep(trial.sweep_id)).request
    return app.asides.ask(trial_link_timelines, trial, request)


@router.get("/sweeps/{sweep_id}/rules", responses=problems(404, 422))
def read_rules(app: AppOf, sweep: SweepOf) -> Document[SweepRules]:
    """State what the sweep's measured trials say about one choice at a time.

    Pairs of measured layouts that differ in one choice alone: how many there are, how many became faster, and by how
    much in the median and at the ends. The six subjects of arXiv 2311.05610 come first, without pairs too.
    """
    return SweepRules.of(all_trials(app.store, sweep.id))
