"""Tables of optimizer studies and their trials."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Named, Table, TypedColumns

from autotuner.core.study import OptimizerStudyRequest, OptimizerTrial, StudyState
from autotuner.store.tables.columns import Document, Plain, metadata, word


class _OptimizerStudies(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    idempotency_key: Named[str | None] = Column(Plain, unique=True)
    request: Named[OptimizerStudyRequest] = Column(Document(OptimizerStudyRequest))
    state: Named[StudyState] = Column(word(StudyState))
    created_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    detail: Named[str] = Column(Plain)
    cancel_requested: Named[bool]
    owner: Named[str | None] = Column(Plain)
    lease_until: Named[float | None]
    renewals: Named[int]
    lease_s: Named[float | None]
    created_by: Named[str] = Column(Plain)


optimizer_studies = Table(
    "optimizer_studies",
    metadata,
    _OptimizerStudies,
    Index(None, "created_at", "id"),  # the list, newest first
    Index(None, "state", "created_at", "id"),  # the oldest to claim
)


class _OptimizerTrials(TypedColumns):
    study_id: Named[str] = Column(Plain, ForeignKey(optimizer_studies.c.id), primary_key=True)
    number: Named[int] = Column(primary_key=True, autoincrement=False)
    document: Named[OptimizerTrial] = Column(Document(OptimizerTrial))


optimizer_trials = Table("optimizer_trials", metadata, _OptimizerTrials)
