"""Tables of who may call and of what they did."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Named, Table, TypedColumns

from autotuner.core.access import Quota, Scope
from autotuner.store.tables.columns import Document, Plain, metadata, word


class _Tokens(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    digest: Named[str] = Column(Plain)
    name: Named[str] = Column(Plain)
    scope: Named[Scope] = Column(word(Scope))
    quota: Named[Quota] = Column(Document(Quota))
    created_at: Named[float]
    created_by: Named[str] = Column(Plain)
    expires_at: Named[float | None]
    revoked_at: Named[float | None]
    last_used_at: Named[float | None]


tokens = Table("tokens", metadata, _Tokens)


class _Sessions(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    token_id: Named[str] = Column(Plain, ForeignKey(tokens.c.id))
    created_at: Named[float]
    expires_at: Named[float]


sessions = Table("sessions", metadata, _Sessions, Index(None, "token_id"), Index(None, "expires_at"))


class _Audit(TypedColumns):
    id: Named[str] = Column(Plain, primary_key=True)
    at: Named[float]
    caller: Named[str] = Column(Plain)
    token_id: Named[str | None] = Column(Plain)
    action: Named[str] = Column(Plain)
    subject: Named[str] = Column(Plain)
    status: Named[int]
    request_id: Named[str] = Column(Plain)
    address: Named[str] = Column(Plain)


audit = Table(
    "audit",
    metadata,
    _Audit,
    Index(None, "at", "id"),  # newest first
    Index(None, "caller", "at", "id"),  # those of one caller
)
