"""Trials across sweeps: one by its id, and the ranking of all."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import AppOf, PageOf, TrialFilterOf, TrialId
from api.openapi import problems
from api.schemas import RankingPage, TrialDetail
from autotuner.core.documents import Document

router = APIRouter(tags=["trials"])


@router.get("/trials/{trial_id}", responses=problems(404, 422))
def read_trial(app: AppOf, trial_id: TrialId) -> Document[TrialDetail]:
    """Read a trial: layout, prediction, measurement or failure, loss gate, and every step."""
    return TrialDetail.of_stored(app.store, app.store.get_trial(trial_id))


@router.get("/ranking", responses=problems(422))
def rank_all(app: AppOf, where: TrialFilterOf, page: PageOf) -> Document[RankingPage]:
    """Rank the trials of all sweeps by measured MFU, highest first."""
    return RankingPage.of(*app.store.ranking(where=where, page=page), page)
