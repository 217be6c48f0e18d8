"""What stored trials taught of hardware and software."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import AppOf
from api.openapi import problems
from api.schemas import CalibrationList
from autotuner.core.documents import Document

router = APIRouter(prefix="/calibrations", tags=["predictions"])

_Cluster = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=128,
        description="Only what was learnt on accelerators of this cluster: a stored one, or one of the catalog.",
        examples=["h100:64"],
    ),
]


@router.get("", responses=problems(404, 422))
def list_calibrations(app: AppOf, cluster: _Cluster = None) -> Document[CalibrationList]:
    """Tell what the stored trials taught of each platform: accelerator, links, software.

    Predictions and sweeps use it unless they are told not to (`uses_history`): step times are multiplied by the
    factors, and their intervals are as wide as the trials leave them. What was learnt on one platform counts on
    another the less, the more of it differs.
    """
    accelerator = None if cluster is None else app.cluster(cluster).accelerator.name
    return CalibrationList.of(app.recollection.lessons(accelerator))
