"""Layouts in the words of trainers, and trainers' configurations as layouts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import AppOf, TrialId
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import ExportRequest, FormatList, FormatView, ImportedLayout, ImportRequest, LayoutExport
from autotuner.core.access import Scope
from autotuner.core.documents import Document
from autotuner.core.rules.legality import reasons, refused_layout
from autotuner.core.trial_spec import ExportFormat
from autotuner.export.registry import TARGETS, export, read

router = APIRouter(tags=["exports"])


@router.get("/exports/formats", responses=problems())
def list_formats() -> Document[FormatList]:
    """List the formats that a layout can be written in: of which release, what they cannot say, which are read back."""
    return FormatList(items=tuple(FormatView.of(target) for target in TARGETS.values()))


@router.post("/exports", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def export_layout(app: AppOf, body: Document[ExportRequest]) -> Document[LayoutExport]:
    """Write a layout down as a trainer's arguments or configuration file, with what these cannot say."""
    job = body.resolved(app)
    if broken := reasons(body.layout, job):
        raise refused_layout(body.layout, broken)
    return LayoutExport.of(body.layout, app.asides.ask(export, job, body.layout, body.format))


@router.get("/trials/{trial_id}/export", responses=problems(404, 422))
def export_trial(
    app: AppOf,
    trial_id: TrialId,
    wanted: Annotated[ExportFormat, Query(alias="format", description="Whose words are wanted.")],
) -> Document[LayoutExport]:
    """Write a trial's layout down as a trainer's arguments or configuration file, for the job of its sweep."""
    trial = app.store.get_trial(trial_id)
    return LayoutExport.of(trial.layout, export(app.store.get_sweep(trial.sweep_id).request.job, trial.layout, wanted))


@router.post("/imports", responses=problems(400, 422), openapi_extra=needs(Scope.READ))
def import_configuration(app: AppOf, body: Document[ImportRequest]) -> Document[ImportedLayout]:
    """Read a trainer's configuration as a layout: what you run today, to predict, explain and compare.

    Shell scripts are read, never run. `notes` say what was assumed, changed and ignored on the way.
    """
    return ImportedLayout.of(app.asides.ask(read, body.text, body.format, body.num_ranks))
