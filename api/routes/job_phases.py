"""The layout of each phase of a job."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf
from api.edge.needs import needs
from api.openapi import problems
from api.schemas import PhasesPlan, PhasesRequest
from autotuner.core.access import Scope
from autotuner.core.documents import Document
from autotuner.search.job_phases.plan import plan_phases

router = APIRouter(prefix="/job-phases", tags=["predictions"])


@router.post("", responses=problems(400, 404, 422), openapi_extra=needs(Scope.READ))
def plan_job_phases(app: AppOf, body: Document[PhasesRequest]) -> Document[PhasesPlan]:
    """Predict the best layout for each phase of a job, without running anything.

    A switch between two layouts costs what writing a checkpoint, starting the ranks anew and reading it take, so that
    a phase may keep the layout before it. The answer holds the best course, the best that stay in one layout
    throughout (`statics`), and what it would take if each phase had its own fastest layout (`greedy`).
    """
    return app.asides.search(plan_phases, body.resolved(app))
