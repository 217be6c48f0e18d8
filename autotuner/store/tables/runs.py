"""The table of durable runs."""

from __future__ import annotations

from sqlalchemy import Column, Index, Named, Table, Text, TypedColumns

from autotuner.core.run import Problem, RunState, Stop
from autotuner.store.tables.columns import Document, Plain, metadata, word


class _Runs(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    kind: Named[str] = Column(Plain)
    state: Named[RunState] = Column(word(RunState))
    subject: Named[str] = Column(Plain)
    unique_key: Named[str | None] = Column(Plain, unique=True)
    parent_id: Named[str | None] = Column(Plain)
    awaits: Named[str | None] = Column(Plain)  # a run whose parent this one is; none once that has ended
    created_by: Named[str] = Column(Plain)
    created_at: Named[float]
    due_at: Named[float]
    started_at: Named[float | None]
    finished_at: Named[float | None]
    request: Named[str] = Column(Text)  # documents whose types the kind of the run says
    progress: Named[str | None] = Column(Text)
    demand: Named[str | None] = Column(Text)
    num_changes: Named[int]  # version of the demand
    result: Named[str | None] = Column(Text)
    detail: Named[str] = Column(Plain)
    problem: Named[Problem | None] = Column(Document(Problem))
    wanted: Named[Stop | None] = Column(word(Stop))
    idle_since: Named[float | None]
    idle_s: Named[float]
    num_reopened: Named[int]
    owner: Named[str | None] = Column(Plain)
    claim: Named[int]
    renewals: Named[int]
    lease_s: Named[float | None]
    seen_at: Named[float | None]  # last sign of life of a holder, or when it gave the run back: for people alone


runs = Table(
    "runs",
    metadata,
    _Runs,
    Index(None, "kind", "state", "due_at", "created_at", "id"),  # what may be claimed
    Index(None, "kind", "created_at", "id"),  # a list, newest first
    Index(None, "kind", "subject", "created_at", "id"),  # the list of one subject
    Index(None, "kind", "state", "created_at", "id"),  # the list in one state
    Index(None, "parent_id"),
    Index(None, "owner"),  # what is held
)
