"""The table of plans."""

from __future__ import annotations

from sqlalchemy import Column, Index, Named, Table, Text, TypedColumns

from autotuner.store.tables.columns import Plain, metadata


class _Plans(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    question: Named[str] = Column(Text)  # documents whose types the search knows, and no query reads
    created_at: Named[float]
    computed_at: Named[float | None]
    answer: Named[str | None] = Column(Text)
    num_done: Named[int]
    num_known: Named[int]
    owner: Named[str | None] = Column(Plain)
    lease_until: Named[float | None]
    renewals: Named[int]
    lease_s: Named[float | None]


plans = Table(
    "plans",
    metadata,
    _Plans,
    Index(None, "created_at"),  # what is old
    Index(None, "owner"),  # what is held
)
