"""The page of a sweep's layers of communication: what each gives, predicted and among trials."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.dashboard.charts.layer_bars import layer_bars
from api.dashboard.render import page
from api.dependencies import AppOf, SweepOf
from autotuner.core.errors import InvalidInput
from autotuner.search.explain.layers import layer_report, measured_layers

router = APIRouter(include_in_schema=False, default_response_class=Response)


@router.get("/sweeps/{sweep_id}/layers")
def layers_page(request: Request, app: AppOf, sweep: SweepOf) -> Response:
    """What each layer gives to the sweep's job; a job that fits nowhere says so."""
    kept = app.kept_trials.of(sweep.id)
    try:
        predicted = kept.once("layers", lambda: app.asides.search(layer_report, sweep.request.job, sweep.request.space))
        refused = ""
    except InvalidInput as error:
        predicted, refused = None, str(error)
    measured = measured_layers(sweep.request.objective, kept.trials)
    reports = [("By prediction", predicted, "expected MFU"), ("Among trials", measured, sweep.request.objective.noun)]
    return page(
        request,
        "layers.html",
        sweep=sweep,
        refused=refused,
        reports=[
            (title, report, layer_bars(report, is_measured=report is measured), value)
            for title, report, value in reports
            if report is not None
        ],
        has_measured=measured is not None,
    )
