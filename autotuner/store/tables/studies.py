"""The table of trials of optimizer studies."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Named, Table, TypedColumns

from autotuner.core.study import OptimizerTrial
from autotuner.store.tables.columns import Document, Plain, metadata
from autotuner.store.tables.runs import runs


class _OptimizerTrials(TypedColumns):
    study_id: Named[str] = Column(Plain, ForeignKey(runs.c.id), primary_key=True)
    number: Named[int] = Column(primary_key=True, autoincrement=False)
    document: Named[OptimizerTrial] = Column(Document(OptimizerTrial))


optimizer_trials = Table("optimizer_trials", metadata, _OptimizerTrials)
