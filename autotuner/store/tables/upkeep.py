"""Tables of what is done with layouts in use: retunes, MFU gates, and announcements of their outcomes."""

from __future__ import annotations

from sqlalchemy import JSON, Column, ForeignKey, Index, Named, Table, TypedColumns, text

from autotuner.core.announcement import AnnouncementKind, PayloadFormat
from autotuner.core.comparison import RunGroup
from autotuner.core.layout import Layout
from autotuner.core.upkeep import (
    Baseline,
    RetuneRequest,
)
from autotuner.store.tables.columns import Document, Documents, Plain, Words, metadata, word
from autotuner.store.tables.runs import runs


# ---------------------------------------------------------------------- retunes, whose runs are runs
class _Retunes(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    request: Named[RetuneRequest] = Column(Document(RetuneRequest))
    created_at: Named[float]
    is_paused: Named[bool]
    incumbent: Named[Layout | None] = Column(Document(Layout))
    baseline: Named[tuple[RunGroup, ...]] = Column(Documents(RunGroup))
    next_due_at: Named[float | None]
    created_by: Named[str] = Column(Plain, server_default=text("''"))


retunes = Table("retunes", metadata, _Retunes, Index(None, "next_due_at"))


# ---------------------------------------------------------------------- MFU gates, which are runs
class _MeasuredGates(TypedColumns):
    content: Named[str] = Column(Plain, primary_key=True)
    gate_id: Named[str] = Column(Plain, ForeignKey(runs.c.id))  # the last that measured it and came to a decision


measured_gates = Table("measured_gates", metadata, _MeasuredGates)


class _Baselines(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    key: Named[str] = Column(Plain, primary_key=True)
    at: Named[float]
    document: Named[Baseline] = Column(Document(Baseline))


baselines = Table("baselines", metadata, _Baselines)


# ---------------------------------------------------------------------- who hears of it
class _Announcements(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    at: Named[float]
    kind: Named[AnnouncementKind] = Column(word(AnnouncementKind))
    title: Named[str] = Column(Plain)
    text: Named[str] = Column(Plain)
    path: Named[str] = Column(Plain)
    subject_id: Named[str] = Column(Plain)
    facts: Named[dict[str, object]] = Column(JSON)


announcements = Table("announcements", metadata, _Announcements, Index(None, "at", "id"))


class _Webhooks(TypedColumns):
    name: Named[str] = Column(Plain, primary_key=True)
    url: Named[str] = Column(Plain)
    secret: Named[str] = Column(Plain)
    kinds: Named[tuple[AnnouncementKind, ...]] = Column(Words(AnnouncementKind))
    format: Named[PayloadFormat] = Column(word(PayloadFormat))
    created_at: Named[float]
    created_by: Named[str] = Column(Plain, server_default=text("''"))


webhooks = Table("webhooks", metadata, _Webhooks)
